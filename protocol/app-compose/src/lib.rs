//! The compose document: parsing, limits, canonical bytes and the identifiers derived from it.

mod ids;

pub use ids::{AppId, ComposeHash, InstanceId, InvalidHexId, OsImageHash};
