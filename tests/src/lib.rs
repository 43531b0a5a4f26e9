//! What the journeys and benches share: starting real processes, talking to their API, looking for the
//! virtual machines that they really run.

pub mod api;
pub mod cloud;
pub mod command;
pub mod data_dir;
pub mod fleet;
pub mod guest_images;
pub mod hello;
pub mod http;
pub mod inference;
pub mod kms;
pub mod paths;
pub mod published;
pub mod vms;

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest that a journey waits for anything: a machine that many virtual machines share is slow. Only what fails
/// takes so long.
pub const PATIENCE: Duration = Duration::from_mins(15);

/// Waits until `look` finds something, at most `patience`; the last word is `what`.
pub async fn eventually<T>(what: &str, patience: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {} s in vain: {what}", patience.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Addresses of this machine that nobody listens on, each another one. Nobody gets them from the system either,
/// while the process that listens there dies and is started again. They are not listened on to find that out: programs that
/// others start at that moment would share the listeners until they run.
fn free_addresses<const COUNT: usize>() -> [SocketAddr; COUNT] {
    const LOWEST: u16 = 10_000;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768_u16);
    let ports = u64::from(end.saturating_sub(LOWEST).max(1));
    let mut free = HashSet::new();
    for _ in 0..1000 * COUNT {
        if free.len() == COUNT {
            break;
        }
        let offset = RandomState::new().build_hasher().finish() % ports;
        let address = SocketAddr::from(([127, 0, 0, 1], LOWEST + u16::try_from(offset).unwrap_or_default()));
        if TcpStream::connect(address).is_err() {
            free.insert(address);
        }
    }
    let mut free = free.into_iter();
    std::array::from_fn(|_| free.next().expect("a free port"))
}
