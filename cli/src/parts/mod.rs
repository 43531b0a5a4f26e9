//! The long-lived parts of a cloud and how a process hosts them.
//!
//! ```text
//! data directory/
//!   credentials.json    API key of this installation, for commands on this machine
//!   chain/              development chain, if there is one, with the KMS that its contract decides for
//!   control-plane/      database, certificate authority
//!   inference-gateway/  its configuration, tokens, receipts and usage
//!   kms/                sealed roots, release log, the administrator's token
//!   node/               CVMs, pushed images, the node's certificate
//!   guest-images/       one directory for each guest image
//! ```

mod chain;
pub(crate) mod control_plane;
pub(crate) mod development_chain;
mod home;
mod host_options;
pub(crate) mod inference;
mod interrupts;
pub(crate) mod kms;
pub(crate) mod node;
pub(crate) mod prices;
mod secret_file;
pub(crate) mod service;
mod sockets;

pub(crate) use chain::{ChainArgs, chain_name, endpoints, is_for_its_owner};
pub(crate) use home::Home;
pub(crate) use host_options::HostOptions;
pub(crate) use interrupts::Interrupts;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The address at which this machine itself reaches a listener.
pub(crate) fn local(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    address
}
