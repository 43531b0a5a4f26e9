//! TLS 1.3 with evidence.

mod configs;
mod drive;
mod streams;
mod verifiers;

pub use configs::{Clients, client_config, server_config};
pub use streams::{Accepted, Acceptor, Connected, Connector, HandshakeError};
