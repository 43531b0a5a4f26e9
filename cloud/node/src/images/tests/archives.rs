//! Archives as container tools write them, and worse ones.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::images::Digest;

/// A tar archive under construction.
pub(super) struct Tar(Builder<Vec<u8>>);

impl Tar {
    pub(super) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    pub(super) fn file(self, name: &str, contents: impl AsRef<[u8]>) -> Self {
        self.entry(EntryType::Regular, name, None, contents.as_ref())
    }

    pub(super) fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, Some(target), b"")
    }

    /// Any entry; names are written as given, also those that the library would refuse.
    pub(super) fn entry(
        mut self,
        kind: EntryType,
        name: &str,
        target: Option<&str>,
        contents: &[u8],
    ) -> Self {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if let Some(target) = target {
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        }
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(contents.len() as u64);
        header.set_cksum();
        self.0.append(&header, contents).unwrap();
        self
    }

    pub(super) fn blob(self, contents: impl AsRef<[u8]>) -> Self {
        let name = format!("blobs/sha256/{}", Digest::of(contents.as_ref()).hex());
        self.file(&name, contents)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn config_of(layers: &[&[u8]]) -> Vec<u8> {
    let diff_ids: Vec<_> = layers.iter().map(|layer| Digest::of(layer)).collect();
    json!({ "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": diff_ids } })
        .to_string()
        .into_bytes()
}

/// As `docker save` wrote it for long: layers in directories, a layer that occurs twice as a link.
pub(super) fn docker_archive(tags: &[&str], layer: &[u8]) -> Tar {
    let config = config_of(&[layer, layer]);
    let config_name = format!("{}.json", Digest::of(&config).hex());
    let manifest =
        json!([{ "Config": config_name, "RepoTags": tags, "Layers": ["one/layer.tar", "two/layer.tar"] }]);
    Tar::new()
        .entry(EntryType::Directory, "one/", None, b"")
        .file("one/layer.tar", layer)
        .symlink("two/layer.tar", "../one/layer.tar")
        .file(&config_name, config)
        .file("repositories", "{}")
        .file("manifest.json", manifest.to_string())
}

/// The blobs of an image in an OCI layout, and the descriptor of its manifest.
pub(super) fn oci_image(tar: Tar, layer: &[u8]) -> (Tar, Value) {
    let config = config_of(&[layer]);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": describe("application/vnd.oci.image.config.v1+json", &config),
        "layers": [describe("application/vnd.oci.image.layer.v1.tar", layer)],
    })
    .to_string();
    let descriptor = describe("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
    (tar.blob(layer).blob(config).blob(manifest), descriptor)
}

pub(super) fn describe(media_type: &str, contents: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": Digest::of(contents), "size": contents.len() })
}

pub(super) fn oci_index(manifests: &[Value]) -> String {
    json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests })
        .to_string()
}

/// As `podman save --format oci-archive` or `docker buildx` write it.
pub(super) fn oci_archive(name: &str, layer: &[u8]) -> Vec<u8> {
    let (tar, mut descriptor) =
        oci_image(Tar::new().file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#), layer);
    descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    tar.file("index.json", oci_index(&[descriptor])).finish()
}
