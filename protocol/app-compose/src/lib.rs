//! The compose document: parsing, limits, canonical bytes and the identifiers derived from it.
//!
//! No I/O, no clock, no randomness: the control plane, the node and the measured guest share this crate
//! and must come to the same bytes and identifiers.

pub mod canonical;
mod compose_file;
pub mod decode;
mod document;
mod ids;
mod images_only;
mod key_provider;
mod revise;

pub use compose_file::{ComposeFile, ComposeFileError, MAX_DEPTH, MAX_NODES, MAX_SERVICES};
pub use document::{
    Additions, AppCompose, ComposeError, Draft, MAX_COMBINED_BYTES, MAX_ENV_NAME_BYTES, Members, Runner,
    StorageFs, is_env_name,
};
pub use ids::{AppId, ComposeHash, InstanceId, InvalidHexId, OsImageHash};
pub use images_only::images_only;
pub use key_provider::{KeyProvider, UnsupportedProvider};
pub use revise::Revision;
