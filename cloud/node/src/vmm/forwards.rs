//! Ports of the host that lead to ports of a guest: those that an order maps, and those on the loopback
//! that the node opens on demand for itself.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use cloister_guest_channel::GUEST_ADDRESS;
use cloister_node_api::PortProtocol;
use tokio::sync::Mutex;

use super::command_line::NETWORK_ID;
use super::{Monitor, MonitorError};

/// Most ports of a VM that are open on demand at once. Beyond them, the one that was asked for longest ago
/// closes for new connections; established ones stay.
const MAX_ON_DEMAND: usize = 64;

/// A port of the host that leads to a port of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Forward {
    pub(crate) protocol: PortProtocol,
    pub(crate) host: SocketAddrV4,
    pub(crate) guest_port: u16,
}

impl Forward {
    /// The host's end in the monitor's words.
    fn host_end(&self) -> String {
        let protocol = match self.protocol {
            PortProtocol::Tcp => "tcp",
            PortProtocol::Udp => "udp",
        };
        format!("{protocol}:{}:{}", self.host.ip(), self.host.port())
    }

    async fn open(&self, monitor: &Monitor) -> Result<String, MonitorError> {
        let (host, guest) = (self.host_end(), self.guest_port);
        monitor.human(&format!("hostfwd_add {NETWORK_ID} {host}-{GUEST_ADDRESS}:{guest}")).await
    }

    async fn close(&self, monitor: &Monitor) -> Result<String, MonitorError> {
        monitor.human(&format!("hostfwd_remove {NETWORK_ID} {}", self.host_end())).await
    }
}

/// Why mappings could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error("port {0} of the node is used by another program")]
    Taken(u16),
    #[error(transparent)]
    Monitor(#[from] MonitorError),
}

/// The forwards of one running VM. The monitor's table is the truth: a node that was restarted finds the
/// forwards that it made before.
#[derive(Debug, Default)]
pub(crate) struct PortForwards(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The mappings that there should be.
    mapped: Vec<Forward>,
    /// Whether they may not be there, or others with them. A new process has none.
    is_uncertain: bool,
    /// What is open on demand, least recently used first; `None` until the table was read.
    on_demand: Option<VecDeque<Forward>>,
}

impl PortForwards {
    /// The loopback address at which a TCP port of the guest is reached.
    pub(crate) async fn address(&self, monitor: &Monitor, port: u16) -> Result<SocketAddr, MonitorError> {
        let State { mapped, on_demand, .. } = &mut *self.0.lock().await;
        let forwards = match on_demand.as_mut() {
            Some(forwards) => forwards,
            None => on_demand.insert(read_on_demand(monitor, mapped).await?),
        };
        if let Some(forward) = take(forwards, port) {
            forwards.push_back(forward);
            return Ok(forward.host.into());
        }
        while forwards.len() >= MAX_ON_DEMAND {
            let Some(oldest) = forwards.pop_front() else { break };
            oldest.close(monitor).await?;
        }
        // Port 0: the host picks one that is free, without a race.
        let host = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let said = Forward { protocol: PortProtocol::Tcp, host, guest_port: port }.open(monitor).await?;
        let forward = take(&mut read_on_demand(monitor, mapped).await?, port)
            .ok_or_else(|| MonitorError::Refused(said.trim().to_owned()))?;
        forwards.push_back(forward);
        Ok(forward.host.into())
    }

    /// Forgets what is remembered, so that the next question reads the table again.
    pub(crate) async fn forget(&self) {
        self.0.lock().await.on_demand = None;
    }

    /// Has the mappings compared with the table at the next [`PortForwards::publish`], whatever is remembered.
    pub(crate) async fn doubt(&self) {
        self.0.lock().await.is_uncertain = true;
    }

    /// Makes the mappings those of `wanted` and removes others; `is_for_mappings` tells addresses of the host
    /// that nothing else uses. Established connections stay. Asks nobody when all is as it was.
    pub(crate) async fn publish(
        &self,
        monitor: &Monitor,
        wanted: &[Forward],
        is_for_mappings: impl Fn(SocketAddrV4) -> bool,
    ) -> Result<(), PublishError> {
        let mut state = self.0.lock().await;
        if !state.is_uncertain && state.mapped == wanted {
            return Ok(());
        }
        let before = std::mem::replace(&mut state.mapped, wanted.to_vec());
        (state.is_uncertain, state.on_demand) = (true, None);
        let table = read_table(monitor).await?;
        for stale in table.iter().filter(|forward| !wanted.contains(forward)) {
            if before.contains(stale) || is_for_mappings(stale.host) {
                stale.close(monitor).await?;
            }
        }
        for new in wanted.iter().filter(|forward| !table.contains(forward)) {
            // It says nothing when it did it.
            if !new.open(monitor).await?.trim().is_empty() {
                return Err(PublishError::Taken(new.host.port()));
            }
        }
        state.is_uncertain = false;
        Ok(())
    }

    /// The mappings that there are.
    pub(crate) async fn published(&self, monitor: &Monitor) -> Result<Vec<Forward>, MonitorError> {
        let state = self.0.lock().await;
        let mut table = read_table(monitor).await?;
        table.retain(|forward| state.mapped.contains(forward));
        Ok(table)
    }
}

fn take(forwards: &mut VecDeque<Forward>, port: u16) -> Option<Forward> {
    let index = forwards.iter().position(|forward| forward.guest_port == port)?;
    forwards.remove(index)
}

/// What the node opened for itself: TCP on the loopback, and no mapping.
async fn read_on_demand(monitor: &Monitor, mapped: &[Forward]) -> Result<VecDeque<Forward>, MonitorError> {
    let is_own = |forward: &Forward| {
        forward.protocol == PortProtocol::Tcp && forward.host.ip().is_loopback() && !mapped.contains(forward)
    };
    Ok(read_table(monitor).await?.into_iter().filter(is_own).collect())
}

async fn read_table(monitor: &Monitor) -> Result<Vec<Forward>, MonitorError> {
    Ok(parse_table(&monitor.human("info usernet").await?))
}

/// Reads lines such as `TCP[HOST_FORWARD]  18  127.0.0.1 38053  10.0.2.15  8090  0  0`. The table also
/// lists every connection of the guest; only forwards to it count.
fn parse_table(table: &str) -> Vec<Forward> {
    let forward = |line: &str| {
        let mut words = line.split_whitespace();
        let protocol = match words.next()? {
            "TCP[HOST_FORWARD]" => PortProtocol::Tcp,
            "UDP[HOST_FORWARD]" => PortProtocol::Udp,
            _ => return None,
        };
        let host = match words.nth(1)? {
            "*" => Ipv4Addr::UNSPECIFIED,
            address => address.parse().ok()?,
        };
        let host = SocketAddrV4::new(host, words.next()?.parse().ok()?);
        let guest = words.next()?;
        let guest_port = words.next()?.parse().ok()?;
        (guest == GUEST_ADDRESS).then_some(Forward { protocol, host, guest_port })
    };
    table.lines().filter_map(forward).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_forwards_among_connections() {
        let table = "Hub -1 (net0):\r\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n  \
            TCP[ESTABLISHED]   20       127.0.0.1 40000       10.0.2.15  8090     0     0\r\n  \
            TCP[HOST_FORWARD]  19       127.0.0.1 46061       10.0.2.15    80     0     0\r\n  \
            TCP[HOST_FORWARD]  18       127.0.0.1 38053       10.0.2.15  8090     0     0\r\n  \
            UDP[HOST_FORWARD]  12               * 31998       10.0.2.15    53     0     0\r\n";
        let expected = [
            (PortProtocol::Tcp, "127.0.0.1:46061", 80),
            (PortProtocol::Tcp, "127.0.0.1:38053", 8090),
            (PortProtocol::Udp, "0.0.0.0:31998", 53),
        ]
        .map(|(protocol, host, guest_port)| Forward {
            protocol,
            host: host.parse().unwrap(),
            guest_port,
        });
        assert_eq!(parse_table(table), expected);
    }

    proptest! {
        #[test]
        fn never_panics(table in "[ -~\r\n]{0,400}") {
            let _ = parse_table(&table);
        }
    }
}
