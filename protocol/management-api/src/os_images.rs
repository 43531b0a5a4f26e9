//! Guest images of the catalogue, and those that a CVM may change to.

use std::collections::BTreeMap;

use cloister_app_compose::OsImageHash;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A guest image of the catalogue as the operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdminOsImage {
    /// Name.
    #[schema(example = "cloister-0.1.0")]
    pub name: String,
    /// Name in requests.
    pub slug: String,
    /// Version.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// Hash of its contents.
    #[schema(value_type = String)]
    pub os_image_hash: OsImageHash,
    /// Whether it is a development image.
    pub is_dev: bool,
    /// Whether it brings drivers for GPUs.
    pub requires_gpu: bool,
    /// `offered`, or `retired`: kept for the CVMs that have it.
    pub state: String,
    /// Bytes of all its files.
    pub size_bytes: i64,
    /// When it was added.
    pub added_at: Timestamp,
    /// When it was retired.
    pub retired_at: Option<Timestamp>,
    /// CVMs that have it.
    pub cvm_count: i64,
    /// Names of the nodes that reported it.
    pub nodes: Vec<String>,
}

/// The version of an OS image: three or four numbers. Requests that name a version of the interface get a list,
/// others an object with the keys `[0]` to `[3]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum OsVersion {
    /// As a list.
    List(Vec<u32>),
    /// By position.
    Keyed(BTreeMap<String, u32>),
}

impl OsVersion {
    /// Three or four numbers by position.
    #[must_use]
    pub fn keyed(numbers: &[u32]) -> Self {
        Self::Keyed(numbers.iter().enumerate().map(|(at, number)| (format!("[{at}]"), *number)).collect())
    }
}

/// The OS images of one version that a CVM may change to (spec 2.9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AvailableOsImages {
    /// Version.
    pub version: OsVersion,
    /// The one for production.
    pub prod: Option<AvailableOsImage>,
    /// The one for development.
    pub dev: Option<AvailableOsImage>,
}

/// An OS image that a CVM may change to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AvailableOsImage {
    /// Name.
    pub name: String,
    /// Name in requests.
    pub slug: String,
    /// Hash of its contents.
    #[schema(value_type = Option<String>)]
    pub os_image_hash: Option<OsImageHash>,
    /// Whether the CVM has it.
    pub is_current: bool,
}
