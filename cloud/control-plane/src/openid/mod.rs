//! Login by an external provider: OpenID Connect Core 1.0, authorization code flow with PKCE (RFC 7636), state and nonce;
//! Discovery 1.0.
//!
//! Whom the provider names is an issuer and a subject, never a name or a mail address. The pages are in
//! `api/people/openid.rs`, what is kept in `store/openid.rs`.

mod attempt;
mod config;
mod jws;
mod keys;
mod policy;
mod provider;
mod remote;
#[cfg(test)]
pub(crate) mod tests;
mod token;

pub(crate) use attempt::Attempt;
pub use config::{InvalidOpenid, OpenidConfig, RequiredClaim, UnknownPeople};
pub(crate) use policy::Claimed;
pub use provider::Openid;
pub(crate) use provider::{CALLBACK, CameBack, OpenidError};
