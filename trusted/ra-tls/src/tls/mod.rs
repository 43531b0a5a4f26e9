//! TLS 1.3 with evidence.

mod authority;
mod configs;
mod drive;
mod judging;
mod streams;
mod verifiers;

pub use authority::{
    Authority, AuthorityConnector, AuthorityError, AuthorityHandshakeError, AuthorityPolicy, KMS_USAGE,
    authority_client_config, public_key_of, public_key_of_pem,
};
pub use configs::{Clients, client_config, server_config};
pub use judging::{Judged, JudgingAcceptor};
pub use streams::{Accepted, Acceptor, Connected, Connector, HandshakeError};
