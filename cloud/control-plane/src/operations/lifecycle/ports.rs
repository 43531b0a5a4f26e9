//! Ports of nodes that lead to CVMs.

use std::collections::HashSet;

use cloister_node_api::{PortMapping, PortProtocol};

use super::unmeasured::idle;
use super::{Arguments, CvmStatus, Lifecycle, OperationKind, RequestError};
use crate::fleet::NodeStanding;
use crate::store::StoreError;

/// Most mapped ports of a CVM.
pub const MAX_PORTS: usize = 64;

/// A port of a CVM that should be reachable through its node.
pub type WantedPort = (PortProtocol, u16);

/// Why ports were not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapPortsError {
    /// The CVM cannot be changed now.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The operator of the node gave no ports for this.
    #[error("node {0} maps no ports: use the application's URL, or ask the operator for a range of ports")]
    NotOffered(String),
    /// Every port of the range is taken.
    #[error("node {0} has no free port left: give ports of other CVMs back, or ask the operator for more")]
    NoneFree(String),
}

impl From<StoreError> for MapPortsError {
    fn from(error: StoreError) -> Self {
        RequestError::from(error).into()
    }
}

impl Lifecycle {
    /// Makes exactly these ports of a CVM, at most [`MAX_PORTS`] and each once, reachable through its node, and
    /// returns them in the same order. Those that were mapped before keep their port of the node. A VM that is
    /// up goes on undisturbed; its node gets to know by an operation, which gives the former mappings back when
    /// it fails.
    pub async fn map_ports(
        &self,
        cvm_id: i64,
        wanted: &[WantedPort],
        user_id: i64,
    ) -> Result<Vec<PortMapping>, MapPortsError> {
        let mut change = self.store.change().await?;
        let cvm = idle(&mut change, cvm_id).await?;
        let former = cvm.port_mappings();
        let row = change.lock_node(cvm.node_id).await?.ok_or(crate::fleet::PlacementError::NodeGone);
        let node = NodeStanding::of(&row.map_err(RequestError::from)?, self.clock.now_ms());
        let range = node.report.as_ref().and_then(|report| report.port_range);
        let Some(range) = range.or_else(|| wanted.is_empty().then_some((1, 1))) else {
            return Err(MapPortsError::NotOffered(node.node.name));
        };
        let taken = change.ports_of_others(cvm.node_id, cvm_id).await?;
        let mapped = assign(wanted, &former, &taken, range, cvm_id)
            .ok_or_else(|| MapPortsError::NoneFree(node.node.name.clone()))?;
        if mapped == former {
            return Ok(mapped);
        }
        let arguments = Arguments {
            offline: cvm.status == CvmStatus::Stopped,
            was: Some(cvm.status.as_str().to_owned()),
            former_ports: Some(former),
            ..Arguments::default()
        };
        let kind = OperationKind::MapPorts;
        self.check_idle(&mut change, &cvm, kind, kind.rules_for(arguments.power())).await?;
        let operation = self.new_operation(cvm_id, user_id, kind, &arguments, None);
        change.set_ports(cvm_id, &mapped, self.clock.now_ms()).await?;
        self.begin(&mut change, cvm_id, operation.map_err(RequestError::from)?).await?;
        change.commit().await?;
        self.wake();
        Ok(mapped)
    }
}

/// Gives each wanted port one of the node's, the same as before where there was one; `None` when the range is
/// used up. The search begins at a place of the CVM's own, so that a port that one CVM gives back is not at once
/// another's.
fn assign(
    wanted: &[WantedPort],
    former: &[PortMapping],
    taken: &[PortMapping],
    (first, last): (u16, u16),
    cvm_id: i64,
) -> Option<Vec<PortMapping>> {
    let key = |mapping: &PortMapping| (mapping.protocol, mapping.host_port);
    let kept = |(protocol, port): WantedPort| {
        let same = |mapping: &&PortMapping| mapping.protocol == protocol && mapping.vm_port == port;
        // The range may have been moved since.
        let offered = |mapping: &&PortMapping| (first..=last).contains(&mapping.host_port);
        former.iter().find(same).filter(offered)
    };
    let mut used: HashSet<_> = taken.iter().map(key).collect();
    used.extend(wanted.iter().filter_map(|port| kept(*port)).map(key));
    let span = i64::from(last) - i64::from(first) + 1;
    let stripe = i64::try_from(MAX_PORTS).ok()?;
    let begin = cvm_id.wrapping_mul(stripe).rem_euclid(span.max(1));
    let mut assigned = Vec::with_capacity(wanted.len());
    for (protocol, vm_port) in wanted.iter().copied() {
        if let Some(mapping) = kept((protocol, vm_port)) {
            assigned.push(mapping.clone());
            continue;
        }
        let candidates = (0..span).map(|offset| i64::from(first) + (begin + offset) % span);
        let mut ports = candidates.filter_map(|port| u16::try_from(port).ok());
        let host_port = ports.find(|port| used.insert((protocol, *port)))?;
        assigned.push(PortMapping { protocol, host_address: String::new(), host_port, vm_port });
    }
    Some(assigned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host_ports(mapped: &[PortMapping]) -> Vec<u16> {
        mapped.iter().map(|mapping| mapping.host_port).collect()
    }

    #[test]
    fn what_was_mapped_keeps_its_port() {
        let wanted = [(PortProtocol::Tcp, 80), (PortProtocol::Udp, 80)];
        let former = assign(&wanted, &[], &[], (3000, 3099), 1).unwrap();
        let more = [(PortProtocol::Udp, 53), wanted[1]];
        let mapped = assign(&more, &former, &[], (3000, 3099), 1).unwrap();
        assert_eq!(mapped[1], former[1]);
        assert_ne!(mapped[0].host_port, former[1].host_port);
        // Another range of the operator's: nothing outside of it stays.
        let moved = assign(&more, &mapped, &[], (4000, 4099), 1).unwrap();
        assert!(host_ports(&moved).iter().all(|port| (4000..4100).contains(port)), "{moved:?}");
    }

    #[test]
    fn a_range_is_used_up_to_its_last_port() {
        let wanted = [(PortProtocol::Tcp, 80), (PortProtocol::Tcp, 81)];
        let taken = assign(&wanted, &[], &[], (65534, 65535), 7).unwrap();
        assert!(assign(&wanted[..1], &[], &taken, (65534, 65535), 8).is_none());
        assert!(assign(&[(PortProtocol::Udp, 80)], &[], &taken, (65534, 65535), 8).is_some());
        assert_eq!(assign(&[], &taken, &[], (1, 1), 7), Some(vec![]));
    }

    fn ports() -> impl Strategy<Value = Vec<WantedPort>> {
        let port = (prop_oneof![Just(PortProtocol::Tcp), Just(PortProtocol::Udp)], 1..200_u16);
        proptest::collection::hash_set(port, 0..MAX_PORTS).prop_map(|ports| ports.into_iter().collect())
    }

    proptest! {
        #[test]
        fn no_port_of_a_node_leads_to_two_places(a in ports(), b in ports(), c in ports(), id in 0..i64::MAX) {
            let range = (30_000, 30_150);
            let of_a = assign(&a, &[], &[], range, id).unwrap();
            let Some(of_b) = assign(&b, &[], &of_a, range, id.wrapping_add(1)) else { return Ok(()) };
            let Some(again) = assign(&c, &of_b, &of_a, range, id.wrapping_add(1)) else { return Ok(()) };
            for (wanted, mapped) in [(&a, &of_a), (&b, &of_b), (&c, &again)] {
                let order: Vec<WantedPort> = mapped.iter().map(|m| (m.protocol, m.vm_port)).collect();
                prop_assert_eq!(wanted, &order);
            }
            for other in [&of_b, &again] {
                let both: Vec<_> = of_a.iter().chain(other).map(|m| (m.protocol, m.host_port)).collect();
                let distinct: HashSet<_> = both.iter().collect();
                prop_assert_eq!(distinct.len(), both.len());
                prop_assert!(both.iter().all(|(_, port)| (range.0..=range.1).contains(port)));
            }
            for kept in again.iter().filter(|m| b.contains(&(m.protocol, m.vm_port))) {
                prop_assert!(of_b.contains(kept), "{kept:?}");
            }
        }
    }
}
