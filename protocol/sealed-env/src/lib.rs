//! Environment variables sealed to an application's key: whoever deploys an application seals, the measured
//! guest opens, and nobody between them reads (platform reference, section 3).
//!
//! The seal proves nothing about who made it: anybody who knows the application's public key can seal.
//! Therefore the guest takes only names that the measured document allows, and none that could take over
//! what runs before or beside the application ([`is_dangerous`]).

mod blob;
mod dangerous;
mod environment;
mod selection;
#[cfg(test)]
mod tests;

pub use blob::{MAX_BLOB_BYTES, MIN_BLOB_BYTES, OpenError, SealError, open, public_key, seal, seal_bytes};
pub use dangerous::{DANGEROUS_NAMES, DangerousName, danger, is_dangerous};
pub use environment::{
    Environment, InvalidEnvironment, MAX_NAME_BYTES, MAX_TOTAL_BYTES, MAX_VALUE_BYTES, MAX_VARIABLES,
};
pub use selection::{Selection, SkipReason, Skipped};
