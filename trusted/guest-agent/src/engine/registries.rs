//! Where images come from.

use std::collections::BTreeSet;

use cloister_guest_channel::registries::{REGISTRIES_CONF, registry_entry};

/// Without a mirror: names without a registry mean Docker Hub, as in Docker.
const PLAIN: &str = "unqualified-search-registries = [\"docker.io\"]\nshort-name-mode = \"disabled\"\n";

/// The engine's `registries.conf` for an application that uses `images`. The node's mirror is asked
/// first and speaks plain HTTP: what it serves is trusted only as far as a reference names a digest.
pub(super) fn configuration<'a>(image_mirror: bool, images: impl IntoIterator<Item = &'a str>) -> String {
    if !image_mirror {
        return PLAIN.to_owned();
    }
    let registries: BTreeSet<_> =
        images.into_iter().filter_map(|image| Some(image.split_once('/')?.0)).filter(is_registry).collect();
    let entries = registries.into_iter().filter_map(registry_entry);
    std::iter::once(REGISTRIES_CONF.to_owned()).chain(entries).collect()
}

/// Whether the first component of a reference is a registry and not a part of the name: Docker's rule.
fn is_registry(component: &&str) -> bool {
    component.contains(['.', ':']) || *component == "localhost"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_each_unusual_registry_once() {
        let images =
            ["nginx", "library/nginx", "ghcr.io/a/b", "registry.example:5000/a", "registry.example:5000/b"];
        let text = configuration(true, images);
        assert_eq!(text.matches("prefix = \"registry.example:5000\"").count(), 1);
        assert_eq!(text.matches("prefix = \"ghcr.io\"").count(), 1);
        assert!(!text.contains("\"library\""));
        assert_eq!(configuration(false, images), PLAIN);
    }
}
