//! The addresses that the parts of a cloud listen on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use crate::failure::{Exit, Failure};

/// Where the ingress of a cloud on this machine listens for TLS unless somebody changed it.
pub(in crate::commands) const DEFAULT_HTTPS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8743);

/// Ports that are taken for port 0; Linux gives outgoing connections those from 32768 on.
const FIRST_PORT: u16 = 15_000;
const LAST_PORT: u16 = 32_000;
/// How many of them are tried before the system may choose.
const ATTEMPTS: usize = 100;

/// Options for every listener; port 0 takes any free one.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Addresses")]
pub(crate) struct Ports {
    /// Management API
    #[arg(long = "api-listen", value_name = "ADDRESS", default_value = "127.0.0.1:8700")]
    pub(super) api: SocketAddr,
    /// Control plane's listener for nodes (mutual TLS)
    #[arg(long = "fleet-listen", value_name = "ADDRESS", default_value = "127.0.0.1:8701")]
    pub(super) fleet: SocketAddr,
    /// Node's listener for the control plane (mutual TLS)
    #[arg(long = "node-listen", value_name = "ADDRESS", default_value = "127.0.0.1:8702")]
    pub(super) node: SocketAddr,
    /// Ingress to the applications, plain HTTP
    #[arg(long = "http-listen", value_name = "ADDRESS", default_value = "127.0.0.1:8780")]
    pub(super) http: SocketAddr,
    /// Ingress to the applications, HTTPS
    #[arg(long = "https-listen", value_name = "ADDRESS", default_value_t = DEFAULT_HTTPS)]
    pub(super) https: SocketAddr,
    /// Release of keys to CVMs (TLS, both sides with evidence); with port 0 the one of the last start, if it
    /// is free
    #[arg(long = "kms-listen", value_name = "ADDRESS", default_value = "127.0.0.1:12001")]
    pub(super) kms: SocketAddr,
    /// Directory and administration of the key management service (TLS)
    #[arg(long = "kms-directory-listen", value_name = "ADDRESS", default_value = "127.0.0.1:12002")]
    pub(super) kms_directory: SocketAddr,
}

/// Options for the listeners of the KMS that the contract on a development chain decides for.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Addresses")]
pub(crate) struct ContractPorts {
    /// The same for the KMS that a contract decides for, with --development-chain
    #[arg(id = "contract-kms-listen", long, value_name = "ADDRESS", default_value = "127.0.0.1:12003")]
    pub(super) kms: SocketAddr,
    /// Its directory
    #[arg(
        id = "contract-kms-directory-listen",
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:12004"
    )]
    pub(super) directory: SocketAddr,
}

impl ContractPorts {
    /// As [`Ports::settle`].
    pub(super) fn settle(mut self, kms_before: Option<u16>) -> Result<Self, Failure> {
        stay(&mut self.kms, kms_before);
        settle([
            ("--contract-kms-listen", &mut self.kms),
            ("--contract-kms-directory-listen", &mut self.directory),
        ])?;
        Ok(self)
    }
}

impl Ports {
    /// Each address with the option that changes it.
    const fn options(&mut self) -> [(&'static str, &mut SocketAddr); 7] {
        [
            ("--api-listen", &mut self.api),
            ("--fleet-listen", &mut self.fleet),
            ("--node-listen", &mut self.node),
            ("--http-listen", &mut self.http),
            ("--https-listen", &mut self.https),
            ("--kms-listen", &mut self.kms),
            ("--kms-directory-listen", &mut self.kms_directory),
        ]
    }

    /// Looks whether every address is free, so that a taken one is named with its option before anything
    /// starts, and settles ports that were left open: links to applications hold the number.
    /// CVMs keep the address of the key management service: `kms_before` is where it was.
    pub(super) fn settle(mut self, kms_before: Option<u16>) -> Result<Self, Failure> {
        stay(&mut self.kms, kms_before);
        settle(self.options())?;
        Ok(self)
    }
}

/// Takes the port that was chosen before, if any will do and it is free.
fn stay(address: &mut SocketAddr, before: Option<u16>) {
    if let (0, Some(port)) = (address.port(), before) {
        let same = SocketAddr::new(address.ip(), port);
        if TcpListener::bind(same).is_ok() {
            *address = same;
        }
    }
}

fn settle<const COUNT: usize>(options: [(&'static str, &mut SocketAddr); COUNT]) -> Result<(), Failure> {
    // Held until all are settled, so that no two of them get the same.
    let mut held = Vec::new();
    for (option, address) in options {
        let bound = listen(*address).and_then(|listener| {
            let settled = listener.local_addr()?;
            held.push(listener);
            Ok(settled)
        });
        *address = bound.map_err(|error| unusable(option, *address, error))?;
    }
    Ok(())
}

/// Listens at `address`. Port 0 takes a free one below those that the system gives to outgoing connections:
/// the part that listens there later finds it free still.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.port() == 0 {
        for _ in 0..ATTEMPTS {
            let random = getrandom::u32().map_err(io::Error::from)?;
            let port = u16::try_from(random % u32::from(LAST_PORT - FIRST_PORT)).unwrap_or_default();
            if let Ok(listener) = TcpListener::bind(SocketAddr::new(address.ip(), FIRST_PORT + port)) {
                return Ok(listener);
            }
        }
    }
    TcpListener::bind(address)
}

fn unusable(option: &str, address: SocketAddr, error: io::Error) -> Failure {
    let other = format!("choose another: cloister up {option} {}:0 takes any free port", address.ip());
    if error.kind() == io::ErrorKind::AddrInUse {
        return Failure::new(Exit::Conflict, format!("{address} is in use by another program")).hint(other);
    }
    Failure::local(format!("cannot listen on {address}"), error).hint(other)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        ports: Ports,
    }

    #[test]
    fn a_taken_port_is_named_with_the_option_that_changes_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let free = ["--api-listen", "--fleet-listen", "--node-listen", "--https-listen"]
            .into_iter()
            .chain(["--kms-listen", "--kms-directory-listen"])
            .flat_map(|option| [option, "127.0.0.1:0"]);
        let line = ["up", "--http-listen", &address].into_iter().chain(free);
        let failure = Line::parse_from(line).ports.settle(None).unwrap_err();
        assert_eq!(failure.exit, Exit::Conflict);
        assert!(failure.message.contains(&address), "{failure}");
        assert!(failure.hints.iter().any(|hint| hint.contains("--http-listen")), "{:?}", failure.hints);
    }

    #[test]
    fn open_ports_are_settled_to_different_ones_that_no_outgoing_connection_gets() {
        let options = ["--api-listen", "--fleet-listen", "--node-listen", "--http-listen", "--https-listen"];
        let options = options.into_iter().chain(["--kms-listen", "--kms-directory-listen"]);
        let line = std::iter::once("up").chain(options.flat_map(|option| [option, "127.0.0.1:0"]));
        let mut ports = Line::parse_from(line).ports.settle(None).unwrap();
        let settled: std::collections::BTreeSet<_> =
            ports.options().into_iter().map(|(_, address)| address.port()).collect();
        assert_eq!(settled.len(), 7);
        assert!(settled.into_iter().all(|port| (FIRST_PORT..LAST_PORT).contains(&port)));
    }

    #[test]
    fn the_kms_stays_where_it_was_unless_somebody_else_is_there() {
        let options = ["--api-listen", "--fleet-listen", "--node-listen", "--http-listen", "--https-listen"];
        let options = options.into_iter().chain(["--kms-listen", "--kms-directory-listen"]);
        let line: Vec<_> =
            std::iter::once("up").chain(options.flat_map(|option| [option, "127.0.0.1:0"])).collect();
        let settled = |before| Line::parse_from(&line).ports.settle(before).unwrap().kms.port();
        let first = settled(None);
        assert_ne!(first, 0);
        assert_eq!(settled(Some(first)), first);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap().port();
        assert_ne!(settled(Some(taken)), taken);
    }
}
