//! Image references as compose files write them, in full.

use std::fmt;
use std::str::FromStr;

use cloister_guest_channel::registries::mirror_namespace;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
/// Longest `registry/repository`, in bytes.
const MAX_NAME_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// `registry/repository:tag` with nothing left out: `hello` is `docker.io/library/hello:latest`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    name: String,
    tag: String,
}

/// A text that names no image by tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an image reference: use [registry/]repository[:tag] in lower case and without a digest, \
     as in ghcr.io/me/app:1.0"
)]
pub struct InvalidReference;

impl Reference {
    /// `registry/repository`, without the tag.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.tag)
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let (path, tag) = match text.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, tag),
            _ => (text, DEFAULT_TAG),
        };
        let (registry, repository) = match path.split_once('/') {
            Some((first, rest)) if is_registry(first) => (first, rest),
            _ => (DEFAULT_REGISTRY, path),
        };
        let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
        let library = if registry == DEFAULT_REGISTRY && !repository.contains('/') { "library/" } else { "" };
        let name = format!("{registry}/{library}{repository}");
        let is_valid = mirror_namespace(registry).is_some()
            && repository.split('/').all(is_component)
            && is_tag(tag)
            && name.len() <= MAX_NAME_BYTES;
        is_valid.then(|| Self { name, tag: tag.to_owned() }).ok_or(InvalidReference)
    }
}

/// Docker's rule for telling a registry from the first part of a repository.
fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':'])
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`, the component rule of the distribution specification.
fn is_component(component: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    bytes.first().copied().is_some_and(is_word)
        && bytes.last().copied().is_some_and(is_word)
        && component
            .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .all(|between| matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= MAX_TAG_BYTES
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_forms_are_completed() {
        for (text, full) in [
            ("hello", "docker.io/library/hello:latest"),
            ("hello:1", "docker.io/library/hello:1"),
            ("me/hello", "docker.io/me/hello:latest"),
            ("index.docker.io/hello", "docker.io/library/hello:latest"),
            ("cloister.local/hello:1", "cloister.local/hello:1"),
            ("localhost/x", "localhost/x:latest"),
            ("localhost:5000/a/b:T_1.x-y", "localhost:5000/a/b:T_1.x-y"),
            ("ghcr.io/a__b/c--d.e", "ghcr.io/a__b/c--d.e:latest"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), full, "{text}");
        }
    }

    #[test]
    fn what_names_no_image_by_tag() {
        let long = "a".repeat(256);
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for text in [
            "",
            ":",
            "a:",
            ":1",
            "A",
            "a b",
            "a//b",
            "/a",
            "a/",
            "../a",
            "a/../b",
            "a..b",
            "a___b",
            "-a",
            "a:-1",
            "a:b:c",
            "a.b:99999/c",
            &long,
            &digest,
        ] {
            assert_eq!(text.parse::<Reference>(), Err(InvalidReference), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn the_full_form_is_stable(text in "([a-z.]{1,8}(:[0-9]{1,4})?/)?[a-z0-9._/-]{1,20}(:[A-Za-z0-9._-]{1,10})?") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(reference.to_string().parse::<Reference>(), Ok(reference));
            }
        }

        #[test]
        fn any_text_is_answered(text in ".{0,300}") {
            let _ = text.parse::<Reference>();
        }
    }
}
