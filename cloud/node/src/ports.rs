//! Ports of the host that lead to guests: which ones there are, and which VM has which.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use cloister_node_api::{PortMapping, PortProtocol};
use uuid::Uuid;

use crate::error::VmError;
use crate::vmm::Forward;

/// Ports below this one belong to the host's own services.
const FIRST_FREE_PORT: u16 = 1024;

/// First and last port that mappings may use; `30000-32767` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// A text that is no range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a range of ports looks like 30000-32767, from 1024 on")]
pub struct InvalidPortRange;

impl PortRange {
    /// The ports from `first`, at least 1024, to `last`; `None` when there are none.
    #[must_use]
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (FIRST_FREE_PORT <= first && first <= last).then_some(Self { first, last })
    }

    /// Whether a port is in it.
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }

    /// First and last port.
    #[must_use]
    pub const fn bounds(self) -> (u16, u16) {
        (self.first, self.last)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = InvalidPortRange;

    fn from_str(text: &str) -> Result<Self, InvalidPortRange> {
        let (first, last) = text.split_once('-').ok_or(InvalidPortRange)?;
        let port = |text: &str| text.parse().map_err(|_| InvalidPortRange);
        Self::new(port(first)?, port(last)?).ok_or(InvalidPortRange)
    }
}

/// The ports of this host that VMs can have.
#[derive(Debug)]
pub(crate) struct HostPorts {
    address: Ipv4Addr,
    range: Option<PortRange>,
    holders: Mutex<HashMap<(PortProtocol, u16), Uuid>>,
}

impl HostPorts {
    pub(crate) fn new(address: Ipv4Addr, range: Option<PortRange>) -> Self {
        Self { address, range, holders: Mutex::default() }
    }

    /// Whether an address of the host is for mappings only.
    pub(crate) fn is_for_mappings(&self, host: SocketAddrV4) -> bool {
        *host.ip() == self.address && self.range.is_some_and(|range| range.contains(host.port()))
    }

    /// What the mappings of an order mean on this host.
    pub(crate) fn forwards(&self, mappings: &[PortMapping]) -> Result<Vec<Forward>, VmError> {
        mappings.iter().map(|mapping| self.forward(mapping)).collect()
    }

    fn forward(&self, mapping: &PortMapping) -> Result<Forward, VmError> {
        let Some(range) = self.range else {
            return Err(VmError::Invalid(
                "the node maps no ports: use the application's URL, or ask the operator for a range of ports"
                    .to_owned(),
            ));
        };
        if !range.contains(mapping.host_port) {
            return Err(VmError::Invalid(format!(
                "port {} of the host cannot be mapped: the node maps ports {range}",
                mapping.host_port
            )));
        }
        let is_ours = |text: &str| text.parse() == Ok(self.address);
        if !mapping.host_address.is_empty() && !is_ours(&mapping.host_address) {
            return Err(VmError::Invalid(format!(
                "the node maps ports of its address {} only: leave the host's address empty",
                self.address
            )));
        }
        Ok(Forward {
            protocol: mapping.protocol,
            host: SocketAddrV4::new(self.address, mapping.host_port),
            guest_port: mapping.vm_port,
        })
    }

    /// Takes ports for a VM, besides those that it has: all of them, or none when another VM has one.
    pub(crate) fn claim(&self, vm: Uuid, mappings: &[PortMapping]) -> Result<(), VmError> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = |mapping: &&PortMapping| {
            holders.get(&(mapping.protocol, mapping.host_port)).is_some_and(|holder| *holder != vm)
        };
        if let Some(taken) = mappings.iter().find(is_taken) {
            return Err(VmError::OutOfResources(format!(
                "port {} of the node leads to another CVM: choose another port",
                taken.host_port
            )));
        }
        holders.extend(mappings.iter().map(|mapping| ((mapping.protocol, mapping.host_port), vm)));
        Ok(())
    }

    /// Gives back what a VM has besides `mappings`.
    pub(crate) fn keep(&self, vm: Uuid, mappings: &[PortMapping]) {
        let is_kept =
            |port: &(PortProtocol, u16)| mappings.iter().any(|kept| (kept.protocol, kept.host_port) == *port);
        self.holders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|port, holder| *holder != vm || is_kept(port));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(protocol: PortProtocol, host_port: u16, host_address: &str) -> PortMapping {
        PortMapping { protocol, host_address: host_address.to_owned(), host_port, vm_port: 80 }
    }

    #[test]
    fn ranges_have_one_form() {
        for text in ["30000-32767", "1024-1024", "1024-65535"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
        for text in ["", "30000", "2000-1999", "80-90", "1024-65536", "1024-", "a-b", "1-2-3"] {
            assert_eq!(text.parse::<PortRange>(), Err(InvalidPortRange), "{text}");
        }
    }

    #[test]
    fn mappings_stay_within_what_the_operator_gave() {
        let ports = HostPorts::new(Ipv4Addr::LOCALHOST, PortRange::new(3000, 3001));
        for address in ["", "127.0.0.1"] {
            let [forward] = ports.forwards(&[mapping(PortProtocol::Udp, 3001, address)]).unwrap()[..] else {
                panic!("one forward")
            };
            assert_eq!(forward.host, "127.0.0.1:3001".parse().unwrap());
            assert!(ports.is_for_mappings(forward.host));
        }
        for (port, address) in
            [(2999, ""), (3002, ""), (3000, "0.0.0.0"), (3000, "127.0.0.1,x"), (3000, "::1")]
        {
            let refused = ports.forwards(&[mapping(PortProtocol::Tcp, port, address)]);
            assert!(matches!(refused, Err(VmError::Invalid(_))), "{port} {address}");
        }
        let none = HostPorts::new(Ipv4Addr::LOCALHOST, None);
        assert!(none.forwards(&[]).unwrap().is_empty());
        assert!(matches!(none.forwards(&[mapping(PortProtocol::Tcp, 3000, "")]), Err(VmError::Invalid(_))));
    }

    #[test]
    fn a_port_leads_to_one_vm() {
        let ports = HostPorts::new(Ipv4Addr::LOCALHOST, PortRange::new(3000, 3009));
        let [a, b] = [1, 2].map(Uuid::from_u128);
        let [tcp, udp, other] =
            [(PortProtocol::Tcp, 3000), (PortProtocol::Udp, 3000), (PortProtocol::Tcp, 3001)]
                .map(|(protocol, port)| mapping(protocol, port, ""));
        ports.claim(a, std::slice::from_ref(&tcp)).unwrap();
        ports.claim(b, std::slice::from_ref(&udp)).unwrap();
        assert!(matches!(ports.claim(b, &[other.clone(), tcp.clone()]), Err(VmError::OutOfResources(_))));
        ports.claim(a, std::slice::from_ref(&other)).unwrap();
        ports.keep(a, std::slice::from_ref(&other));
        ports.claim(b, std::slice::from_ref(&tcp)).unwrap();
        assert!(ports.claim(b, std::slice::from_ref(&other)).is_err(), "a kept it");
    }
}
