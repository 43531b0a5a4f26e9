//! The guest's static network and the files that tell programs about it.

use std::fs;
use std::io;
use std::path::Path;

use cloister_guest_channel::{GATEWAY_ADDRESS, GUEST_ADDRESS, GUEST_PREFIX_LENGTH, RESOLVER_ADDRESS};
use tokio::process::Command;

use super::RUNTIME;
use crate::output::{self, CommandError};

const FALLBACK_HOSTNAME: &str = "cloister";

/// Why the guest has no network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("cannot write network settings")]
    Write(#[from] io::Error),
    #[error("cannot set up the network interface")]
    Interface(#[from] CommandError),
}

/// Sets host name, addresses, route, resolver and forwarding.
pub(crate) async fn configure(hostname: &str) -> Result<(), NetworkError> {
    let hostname = if is_hostname(hostname) { hostname } else { FALLBACK_HOSTNAME };
    rustix::system::sethostname(hostname.as_bytes()).map_err(io::Error::from)?;
    let runtime = Path::new(RUNTIME);
    fs::create_dir_all(runtime)?;
    fs::write(runtime.join("hostname"), format!("{hostname}\n"))?;
    fs::write(runtime.join("hosts"), hosts(hostname))?;
    fs::write(runtime.join("resolv.conf"), format!("nameserver {RESOLVER_ADDRESS}\n"))?;
    let batch = runtime.join("interfaces");
    fs::write(&batch, interfaces())?;
    output::check(Command::new("ip").arg("-batch").arg(&batch)).await?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    Ok(())
}

fn hosts(hostname: &str) -> String {
    format!("127.0.0.1 localhost\n::1 localhost\n{GUEST_ADDRESS} {hostname}\n")
}

fn interfaces() -> String {
    format!(
        "link set lo up\n\
         address add {GUEST_ADDRESS}/{GUEST_PREFIX_LENGTH} dev eth0\n\
         link set eth0 up\n\
         route add default via {GATEWAY_ADDRESS}\n"
    )
}

/// One label of RFC 1123: the node's word is not trusted to be one.
fn is_hostname(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_single_labels() {
        for good in ["a", "my-app-1", "A9"] {
            assert!(is_hostname(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a.b", "a b", "ä", &"a".repeat(64), "a\nnameserver 6.6.6.6"] {
            assert!(!is_hostname(bad), "{bad}");
        }
    }
}
