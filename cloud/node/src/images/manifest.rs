//! Documents of the OCI image specification and of docker archives, as far as the store looks into them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::Digest;

pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Names under which tools keep the reference of an image in an index; the first in full, the second as
/// a full reference or a bare tag.
pub(super) const NAME_ANNOTATIONS: [&str; 2] =
    ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// A blob and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default, skip_serializing)]
    pub(super) annotations: Option<HashMap<String, String>>,
}

/// A list of manifests, for example one per platform.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    pub(super) manifests: Vec<Descriptor>,
}

/// One image.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) schema_version: u32,
    #[serde(default)]
    pub(super) media_type: Option<String>,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

/// An image in `manifest.json` of a docker archive; the strings are paths in the archive.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DockerImage {
    pub(super) config: String,
    pub(super) repo_tags: Option<Vec<String>>,
    pub(super) layers: Vec<String>,
}

/// The part of an image's configuration that lists its layers.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    pub(super) rootfs: RootFs,
}

/// Digests of the layers as plain tar archives.
#[derive(Debug, Deserialize)]
pub(super) struct RootFs {
    pub(super) diff_ids: Vec<Digest>,
}
