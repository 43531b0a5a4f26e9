//! Attested Confidential Inference, `aci/1`: what an inference gateway publishes and signs, and how anybody
//! verifies it.
//!
//! A gateway holds a [`Keyset`]. Its [report] binds the keyset's digest to evidence of the machine; its
//! [receipts](receipt) are signed with a key of the keyset and say what went in, where it went, and what came
//! out; its [sessions](session) say what was verified about an upstream; its [log] has a record of each receipt.
//! [`verify`] walks the checks of a relying party; [`e2ee`] encrypts fields between client and gateway. Nothing
//! here does input or output.
//!
//! Everything is hashed and signed in the canonical form of RFC 8785, of whatever document was parsed: members
//! that this version does not know are covered, too.

mod canonical;
pub mod custody;
pub mod e2ee;
mod keyset;
pub mod log;
mod object;
pub mod receipt;
pub mod report;
pub mod session;
pub mod verify;

#[cfg(test)]
mod tests;

pub use canonical::{CanonicalError, canonical, digest_text, parse, sha256};
pub use keyset::{E2EE_SECP256K1, E2EE_X25519, Keyset, PublicKey, RECEIPT_ED25519, TlsKey};

/// The protocol's version token, in every document.
pub const API_VERSION: &str = "aci/1";
