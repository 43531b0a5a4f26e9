//! The name that an image archive gives its image.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Longest index of an archive, in bytes.
const MAX_INDEX_BYTES: u64 = 4 * 1024 * 1024;
/// Annotation of OCI layouts that names an image.
const REFERENCE_ANNOTATION: &str = "org.opencontainers.image.ref.name";
/// Annotation that containerd and Docker write, with the full name.
const FULL_NAME_ANNOTATION: &str = "io.containerd.image.name";

/// An entry of `manifest.json` in archives of `docker save` and `podman save`.
#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "RepoTags", default)]
    tags: Option<Vec<String>>,
}

/// `index.json` of an OCI layout.
#[derive(Deserialize)]
struct Index {
    manifests: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

/// The only name in the archive.
pub(super) fn reference(path: &Path) -> Result<String, Failure> {
    let unreadable = |error| Failure::usage(format!("cannot read {}", path.display())).caused_by(error);
    let mut names = names(File::open(path).map_err(unreadable)?).unwrap_or_default();
    names.dedup();
    match names.as_slice() {
        [name] => Ok(name.clone()),
        [] => Err(Failure::usage(format!("{} does not name its image", path.display()))
            .hint(format!("give the name: cloister image push {} NAME:TAG", path.display()))),
        several => {
            Err(Failure::usage(format!("{} holds several images: {}", path.display(), several.join(", ")))
                .hint("save each into an archive of its own"))
        }
    }
}

/// Names from the first index that has any; a compressed archive shows none.
fn names(archive: impl Read) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in tar::Archive::new(archive).entries()? {
        let entry = entry?;
        match entry.path_bytes().as_ref() {
            b"manifest.json" => {
                let saved: Vec<Saved> = parse(entry).unwrap_or_default();
                found = saved.into_iter().flat_map(|image| image.tags.unwrap_or_default()).collect();
            }
            b"index.json" if found.is_empty() => {
                let index: Option<Index> = parse(entry);
                found =
                    index.into_iter().flat_map(|index| index.manifests).filter_map(Described::name).collect();
            }
            _ => {}
        }
    }
    Ok(found)
}

impl Described {
    fn name(mut self) -> Option<String> {
        let full = self.annotations.remove(FULL_NAME_ANNOTATION);
        full.or_else(|| self.annotations.remove(REFERENCE_ANNOTATION))
    }
}

fn parse<T: DeserializeOwned>(entry: impl Read) -> Option<T> {
    serde_json::from_reader(entry.take(MAX_INDEX_BYTES)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            builder.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn both_kinds_of_archive_name_their_image() {
        let saved =
            archive(&[("l/layer.tar", "x"), ("manifest.json", r#"[{"Config":"c","RepoTags":["app:1"]}]"#)]);
        assert_eq!(names(saved.as_slice()).unwrap(), ["app:1"]);
        let index =
            r#"{"manifests":[{"digest":"d","annotations":{"org.opencontainers.image.ref.name":"r/app:2"}}]}"#;
        assert_eq!(names(archive(&[("index.json", index)]).as_slice()).unwrap(), ["r/app:2"]);
        assert!(names(archive(&[("manifest.json", "[{}]")]).as_slice()).unwrap().is_empty());
        assert!(names([0u8; 1024].as_slice()).unwrap().is_empty());
        assert!(names([0x1f, 0x8b, 8, 0].as_slice()).is_err());
    }
}
