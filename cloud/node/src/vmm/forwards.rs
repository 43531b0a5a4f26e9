//! Ports of a guest on the host's loopback, opened on demand.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cloister_guest_channel::GUEST_ADDRESS;
use tokio::sync::Mutex;

use super::command_line::NETWORK_ID;
use super::{Monitor, MonitorError};

/// Most ports of a VM that are open at once. Beyond them, the one that was asked for longest ago closes
/// for new connections; established ones stay.
const MAX_FORWARDS: usize = 64;

/// The forwards of one running VM. The monitor's table is the truth: a node that was restarted finds the
/// forwards that it made before.
#[derive(Debug, Default)]
pub(crate) struct PortForwards {
    /// Guest port and host address, least recently used first; `None` until the table was read.
    open: Mutex<Option<VecDeque<(u16, SocketAddr)>>>,
}

impl PortForwards {
    /// The loopback address at which a TCP port of the guest is reached.
    pub(crate) async fn address(&self, monitor: &Monitor, port: u16) -> Result<SocketAddr, MonitorError> {
        let mut open = self.open.lock().await;
        let forwards = match open.as_mut() {
            Some(forwards) => forwards,
            None => open.insert(read_table(monitor).await?),
        };
        if let Some(forward) = take(forwards, port) {
            forwards.push_back(forward);
            return Ok(forward.1);
        }
        while forwards.len() >= MAX_FORWARDS {
            let Some((_, host)) = forwards.pop_front() else { break };
            monitor.human(&format!("hostfwd_remove {NETWORK_ID} tcp:{}:{}", host.ip(), host.port())).await?;
        }
        // Port 0: the host picks one that is free, without a race.
        let said = monitor
            .human(&format!("hostfwd_add {NETWORK_ID} tcp:127.0.0.1:0-{GUEST_ADDRESS}:{port}"))
            .await?;
        let forward = take(&mut read_table(monitor).await?, port)
            .ok_or_else(|| MonitorError::Refused(said.trim().to_owned()))?;
        forwards.push_back(forward);
        Ok(forward.1)
    }

    /// Forgets what is remembered, so that the next question reads the table again.
    pub(crate) async fn forget(&self) {
        *self.open.lock().await = None;
    }
}

fn take(forwards: &mut VecDeque<(u16, SocketAddr)>, port: u16) -> Option<(u16, SocketAddr)> {
    let index = forwards.iter().position(|(guest, _)| *guest == port)?;
    forwards.remove(index)
}

async fn read_table(monitor: &Monitor) -> Result<VecDeque<(u16, SocketAddr)>, MonitorError> {
    Ok(parse_table(&monitor.human("info usernet").await?))
}

/// Reads lines such as `TCP[HOST_FORWARD]  18  127.0.0.1 38053  10.0.2.15  8090  0  0`. The table also
/// lists every connection of the guest; only forwards to it count.
fn parse_table(table: &str) -> VecDeque<(u16, SocketAddr)> {
    let forward = |line: &str| {
        let mut words = line.split_whitespace();
        if words.next()? != "TCP[HOST_FORWARD]" {
            return None;
        }
        let host = words.nth(1)?.parse::<Ipv4Addr>().ok()?;
        let host_port = words.next()?.parse().ok()?;
        let guest = words.next()?;
        let guest_port = words.next()?.parse().ok()?;
        (guest == GUEST_ADDRESS).then_some((guest_port, SocketAddr::new(IpAddr::V4(host), host_port)))
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
            TCP[HOST_FORWARD]  18       127.0.0.1 38053       10.0.2.15  8090     0     0\r\n";
        let expected: VecDeque<_> = [(80, "127.0.0.1:46061"), (8090, "127.0.0.1:38053")]
            .map(|(port, host)| (port, host.parse().unwrap()))
            .into();
        assert_eq!(parse_table(table), expected);
    }

    proptest! {
        #[test]
        fn never_panics(table in "[ -~\r\n]{0,400}") {
            let _ = parse_table(&table);
        }
    }
}
