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
pub mod kms;
pub mod paths;
pub mod vms;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

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

/// Addresses of this machine that nobody listens on, each another one.
fn free_addresses<const COUNT: usize>() -> [SocketAddr; COUNT] {
    // All are held until all are known.
    let held = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    held.map(|listener| listener.local_addr().expect("its address"))
}
