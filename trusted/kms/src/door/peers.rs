//! What each network address takes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::limits::Limits;

/// From this many addresses on, those that rest are forgotten.
const MANY: usize = 4096;

/// One caller, as far as the network tells: an IPv4 address, or the /64 of an IPv6 address, which is what one
/// customer of a network has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let prefix = address.to_bits() >> 64 << 64;
                Self(IpAddr::V6(Ipv6Addr::from_bits(prefix)))
            }
            v4 @ IpAddr::V4(_) => Self(v4),
        }
    }
}

/// All callers of a listener.
pub(crate) struct Peers {
    limits: Limits,
    known: Mutex<HashMap<Network, Arc<Mutex<Peer>>>>,
}

struct Peer {
    connections: usize,
    handshakes: Bucket,
    requests: Bucket,
}

/// Fills up by the second, to some most.
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn take(&mut self, per_second: f64, most: f64, now: Instant) -> bool {
        self.left = (self.left + now.duration_since(self.at).as_secs_f64() * per_second).min(most);
        self.at = now;
        let some = self.left >= 1.0;
        if some {
            self.left -= 1.0;
        }
        some
    }

    fn is_full(&self, per_second: f64, most: f64, now: Instant) -> bool {
        self.left + now.duration_since(self.at).as_secs_f64() * per_second >= most
    }
}

/// One connection of a caller, until it is dropped.
pub(crate) struct Admission {
    peers: Arc<Peers>,
    peer: Arc<Mutex<Peer>>,
}

impl Peers {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, known: Mutex::default() })
    }

    /// One more connection of a caller; `None` when it has too many, or opens them too fast.
    pub(crate) fn admit(self: &Arc<Self>, network: Network, now: Instant) -> Option<Admission> {
        let limits = &self.limits;
        let peer = {
            let mut known = self.known.lock();
            if known.len() >= MANY && !known.contains_key(&network) {
                known.retain(|_, peer| !peer.lock().rests(limits, now));
            }
            let fresh = || Peer {
                connections: 0,
                handshakes: Bucket { left: limits.handshakes_at_once, at: now },
                requests: Bucket { left: limits.requests_at_once, at: now },
            };
            Arc::clone(known.entry(network).or_insert_with(|| Arc::new(Mutex::new(fresh()))))
        };
        let mut this = peer.lock();
        if this.connections >= limits.connections_per_peer
            || !this.handshakes.take(limits.handshakes_per_second, limits.handshakes_at_once, now)
        {
            return None;
        }
        this.connections += 1;
        drop(this);
        Some(Admission { peers: Arc::clone(self), peer })
    }
}

impl Peer {
    /// Whether nothing is lost when it is forgotten.
    fn rests(&self, limits: &Limits, now: Instant) -> bool {
        self.connections == 0
            && self.handshakes.is_full(limits.handshakes_per_second, limits.handshakes_at_once, now)
            && self.requests.is_full(limits.requests_per_second, limits.requests_at_once, now)
    }
}

impl Admission {
    /// One more request; whether it may be answered.
    pub(crate) fn request(&self, now: Instant) -> bool {
        let limits = &self.peers.limits;
        self.peer.lock().requests.take(limits.requests_per_second, limits.requests_at_once, now)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut peer = self.peer.lock();
        peer.connections = peer.connections.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn few() -> Limits {
        Limits {
            connections_per_peer: 2,
            handshakes_per_second: 1.0,
            handshakes_at_once: 3.0,
            requests_per_second: 10.0,
            requests_at_once: 2.0,
            ..Limits::default()
        }
    }

    fn network(text: &str) -> Network {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_its_own_connections_and_handshakes() {
        let (peers, one, other) = (Peers::new(few()), network("192.0.2.1"), network("192.0.2.2"));
        let now = Instant::now();
        let (first, _second) = (peers.admit(one, now).unwrap(), peers.admit(one, now).unwrap());
        assert!(peers.admit(one, now).is_none(), "a third connection");
        assert!(peers.admit(other, now).is_some(), "another address");
        drop(first);
        assert!(peers.admit(one, now).is_some(), "a place is free, and one handshake is left");
        assert!(peers.admit(one, now).is_none(), "no handshake is left");
        assert!(peers.admit(one, now + Duration::from_secs(1)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_of_one_address_share_its_requests() {
        let peers = Peers::new(few());
        let now = Instant::now();
        let (one, two) =
            (peers.admit(network("::1"), now).unwrap(), peers.admit(network("::2"), now).unwrap());
        assert!(one.request(now) && two.request(now));
        assert!(!one.request(now) && !two.request(now));
        assert!(two.request(now + Duration::from_millis(150)));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_that_rest_are_forgotten() {
        let peers = Peers::new(few());
        let now = Instant::now();
        for number in 0..u32::try_from(2 * MANY).unwrap() {
            let address = IpAddr::V4(number.into());
            drop(peers.admit(address.into(), now + Duration::from_secs(u64::from(number))));
        }
        assert!(peers.known.lock().len() <= MANY + 1);
    }

    #[test]
    fn mapped_and_neighbouring_addresses_are_one() {
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8::1"));
    }
}
