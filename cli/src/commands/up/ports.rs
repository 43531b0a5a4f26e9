//! The addresses that the parts of a cloud listen on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use crate::failure::{Exit, Failure};
use crate::parts::inference::Own;

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
    /// Inference gateway, unless its own configuration says where
    #[arg(long = "inference-listen", value_name = "ADDRESS", default_value = "127.0.0.1:8086")]
    pub(super) inference: SocketAddr,
    /// Upstream that echoes, which answers at the gateway until it has others
    #[arg(long = "echo-listen", value_name = "ADDRESS", default_value = "127.0.0.1:8711")]
    pub(super) echo: SocketAddr,
}

/// The same ports of UDP, which nothing here uses: while they are held, no other cloud that chooses at the same moment takes
/// what is chosen and not listened on yet.
pub(super) type Claims = Vec<UdpSocket>;

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
    pub(super) fn settle(mut self, kms_before: Option<u16>) -> Result<(Self, Claims), Failure> {
        stay(&mut self.kms, kms_before);
        let claims = settle([
            (Place::Option("--contract-kms-listen"), &mut self.kms),
            (Place::Option("--contract-kms-directory-listen"), &mut self.directory),
        ])?;
        Ok((self, claims))
    }
}

impl Ports {
    /// Each address with what changes it.
    const fn places<'a>(&'a mut self, own: Option<&'a Own>) -> [(Place<'a>, &'a mut SocketAddr); 9] {
        let gateway = match own {
            Some(own) => Place::Bind(own),
            None => Place::Option("--inference-listen"),
        };
        [
            (Place::Option("--api-listen"), &mut self.api),
            (Place::Option("--fleet-listen"), &mut self.fleet),
            (Place::Option("--node-listen"), &mut self.node),
            (Place::Option("--http-listen"), &mut self.http),
            (Place::Option("--https-listen"), &mut self.https),
            (Place::Option("--kms-listen"), &mut self.kms),
            (Place::Option("--kms-directory-listen"), &mut self.kms_directory),
            (gateway, &mut self.inference),
            (Place::Option("--echo-listen"), &mut self.echo),
        ]
    }

    /// Looks whether every address is free, so that a taken one is named with what changes it before anything
    /// starts, and settles ports that were left open: links to applications hold the number.
    /// CVMs keep the address of the key management service: `kms_before` is where it was. A gateway with a
    /// configuration of its own listens where that says.
    pub(super) fn settle(
        mut self,
        kms_before: Option<u16>,
        own: Option<&Own>,
    ) -> Result<(Self, Claims), Failure> {
        stay(&mut self.kms, kms_before);
        if let Some(own) = own {
            self.inference = own.bind();
        }
        let claims = settle(self.places(own))?;
        Ok((self, claims))
    }
}

/// What a person changes to have another address.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// An option of this command.
    Option(&'static str),
    /// A member of a configuration.
    Bind(&'a Own),
}

impl Place<'_> {
    fn advice(self, address: SocketAddr) -> String {
        match self {
            Self::Option(option) => {
                format!("choose another: cloister up {option} {}:0 takes any free port", address.ip())
            }
            Self::Bind(own) => format!("choose another: bind in {}", own.file.display()),
        }
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

fn settle<const COUNT: usize>(places: [(Place<'_>, &mut SocketAddr); COUNT]) -> Result<Claims, Failure> {
    // Held until all are settled, so that no two of them get the same.
    let (mut held, mut claims) = (Vec::new(), Vec::new());
    for (place, address) in places {
        let bound = listen(*address).and_then(|(listener, claim)| {
            let settled = listener.local_addr()?;
            held.push(listener);
            claims.extend(claim);
            Ok(settled)
        });
        *address = bound.map_err(|error| unusable(place, *address, error))?;
    }
    Ok(claims)
}

/// Listens at `address`. Port 0 takes a free one below those that the system gives to outgoing connections:
/// the part that listens there later finds it free still. A port that somebody names needs no claim, and a program that has
/// it for UDP is none of ours.
fn listen(address: SocketAddr) -> io::Result<(TcpListener, Option<UdpSocket>)> {
    if address.port() == 0 {
        for _ in 0..ATTEMPTS {
            let random = getrandom::u32().map_err(io::Error::from)?;
            let port = u16::try_from(random % u32::from(LAST_PORT - FIRST_PORT)).unwrap_or_default();
            if let Ok((listener, claim)) = claim(SocketAddr::new(address.ip(), FIRST_PORT + port)) {
                return Ok((listener, Some(claim)));
            }
        }
    }
    Ok((TcpListener::bind(address)?, None))
}

/// Takes a port that no other cloud has chosen, and nobody listens on.
fn claim(address: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    let claim = UdpSocket::bind(address)?;
    Ok((TcpListener::bind(address)?, claim))
}

fn unusable(place: Place<'_>, address: SocketAddr, error: io::Error) -> Failure {
    let other = place.advice(address);
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

    const OPTIONS: [&str; 9] = [
        "--api-listen",
        "--fleet-listen",
        "--node-listen",
        "--http-listen",
        "--https-listen",
        "--kms-listen",
        "--kms-directory-listen",
        "--inference-listen",
        "--echo-listen",
    ];

    /// With every port open, but that of one option.
    fn ports(option: &str, address: &str) -> Ports {
        let open = |name| [name, if name == option { address } else { "127.0.0.1:0" }];
        Line::parse_from(std::iter::once("up").chain(OPTIONS.into_iter().flat_map(open))).ports
    }

    #[test]
    fn a_taken_port_is_named_with_the_option_that_changes_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        for option in OPTIONS {
            let failure = ports(option, &address).settle(None, None).unwrap_err();
            assert_eq!(failure.exit, Exit::Conflict);
            assert!(failure.message.contains(&address), "{failure}");
            assert!(failure.hints.iter().any(|hint| hint.contains(option)), "{:?}", failure.hints);
        }
    }

    #[test]
    fn a_gateway_with_its_own_configuration_listens_where_that_says() {
        let home = tempfile::tempdir().unwrap();
        let free = ports("", "").settle(None, None).unwrap().0.inference;
        let config = format!(
            r#"{{"bind": "{free}", "state_dir": "/s", "upstreams":
                [{{"name": "a", "base_url": "http://127.0.0.1:1", "models": {{"m": "m"}}}}]}}"#
        );
        std::fs::create_dir(home.path().join("inference-gateway")).unwrap();
        std::fs::write(home.path().join("inference-gateway/gateway.json"), config).unwrap();
        let own = Own::find(home.path()).unwrap();
        assert_eq!(ports("", "").settle(None, own.as_ref()).unwrap().0.inference, free);
        let _taken = TcpListener::bind(free).unwrap();
        let failure = ports("", "").settle(None, own.as_ref()).unwrap_err();
        assert_eq!(failure.exit, Exit::Conflict);
        assert!(failure.hints.iter().any(|hint| hint.contains("bind in ")), "{:?}", failure.hints);
    }

    #[test]
    fn open_ports_are_settled_to_different_ones_that_no_outgoing_connection_gets() {
        let (mut ports, _) = ports("", "").settle(None, None).unwrap();
        let settled: std::collections::BTreeSet<_> =
            ports.places(None).into_iter().map(|(_, address)| address.port()).collect();
        assert_eq!(settled.len(), OPTIONS.len());
        assert!(settled.into_iter().all(|port| (FIRST_PORT..LAST_PORT).contains(&port)));
    }

    #[test]
    fn what_one_cloud_has_chosen_no_other_takes_before_it_listens() {
        let (mut chosen, claims) = ports("", "").settle(None, None).unwrap();
        let addresses = chosen.places(None).map(|(_, address)| *address);
        for address in addresses {
            assert_eq!(claim(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            drop(TcpListener::bind(address).unwrap());
        }
        drop(claims);
        for address in addresses {
            claim(address).unwrap();
        }
    }

    #[test]
    fn the_kms_stays_where_it_was_unless_somebody_else_is_there() {
        let settled = |before| ports("", "").settle(before, None).unwrap().0.kms.port();
        let first = settled(None);
        assert_ne!(first, 0);
        assert_eq!(settled(Some(first)), first);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap().port();
        assert_ne!(settled(Some(taken)), taken);
    }
}
