//! How the guest's container engine is pointed at the node's image mirror.
//!
//! The engine (podman, through containers-image) rewrites a reference for a mirror by replacing the
//! matched prefix with the mirror's location, so `ghcr.io/a/b:1` would lose its registry unless the
//! location carries it. Every registry therefore gets an entry of its own whose mirror location is
//! [`IMAGE_MIRROR_ADDRESS`](crate::IMAGE_MIRROR_ADDRESS) followed by the registry's
//! [*namespace*](mirror_namespace), and references of different registries never meet:
//!
//! | Reference in a compose file | Path at the mirror |
//! |---|---|
//! | `nginx` | `/v2/docker.io/library/nginx/manifests/latest` |
//! | `ghcr.io/a/b:1` | `/v2/ghcr.io/a/b/manifests/1` |
//! | `registry.example:5000/a@sha256:…` | `/v2/registry.example_5000/a/manifests/sha256:…` |
//!
//! The format has no catch-all entry. [`REGISTRIES_CONF`] names the registries in common use; for any
//! other one the guest appends [`registry_entry`]. Which ones the workspace has images of, the mirror
//! tells at `/v2/_catalog`: the first component of each repository is a namespace, and
//! [`registry_of_namespace`] gives the registry back. A mirror without the image answers 404 and the
//! engine goes on to the registry itself.
//!
//! The guest must have no drop-ins in `/etc/containers/registries.conf.d`: Debian's `shortnames.conf`
//! sends names such as `hello` to registries that a compose file does not mean.

macro_rules! entry {
    ($registry:literal, $namespace:literal) => {
        concat!(
            "\n[[registry]]\nprefix = \"",
            $registry,
            "\"\nlocation = \"",
            $registry,
            "\"\n\n[[registry.mirror]]\nlocation = \"10.0.2.100:5000/",
            $namespace,
            "\"\ninsecure = true\n"
        )
    };
}

macro_rules! registries {
    ($($registry:literal),+ $(,)?) => {
        /// Registries that [`REGISTRIES_CONF`] covers.
        pub const COMMON_REGISTRIES: &[&str] = &[$($registry),+];

        /// Contents of the guest's `/etc/containers/registries.conf`: names without a registry are
        /// Docker Hub's, and every common registry is asked for at the node's mirror first.
        pub const REGISTRIES_CONF: &str = concat!(
            "unqualified-search-registries = [\"docker.io\"]\n",
            "short-name-mode = \"disabled\"\n",
            $(entry!($registry, $registry)),+
        );
    };
}

registries![
    "cloister.local",
    "docker.io",
    "docker.elastic.co",
    "gcr.io",
    "ghcr.io",
    "lscr.io",
    "mcr.microsoft.com",
    "nvcr.io",
    "public.ecr.aws",
    "quay.io",
    "registry.access.redhat.com",
    "registry.gitlab.com",
    "registry.k8s.io",
    "localhost",
];

/// Entry to append to [`REGISTRIES_CONF`] for another registry, `host[:port]`. `None` when the text is
/// no registry or is covered already.
#[must_use]
pub fn registry_entry(registry: &str) -> Option<String> {
    let namespace = mirror_namespace(registry).filter(|_| !COMMON_REGISTRIES.contains(&registry))?;
    Some(
        entry!("{registry}", "{namespace}")
            .replace("{registry}", registry)
            .replace("{namespace}", &namespace),
    )
}

/// First path component at the mirror for the images of a registry, `host[:port]`. A port is set off by
/// `_`, because a repository path cannot hold `:` and a host name cannot hold `_`. `None` when the text
/// is no host name in lower case with an optional port.
#[must_use]
pub fn mirror_namespace(registry: &str) -> Option<String> {
    let (host, port) = registry.split_once(':').map_or((registry, None), |(host, port)| (host, Some(port)));
    let is_host = host.len() <= 253 && host.split('.').all(is_label);
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|n| n.to_string() == port));
    (is_host && is_port).then(|| registry.replace(':', "_"))
}

/// The registry whose [`mirror_namespace`] this is.
#[must_use]
pub fn registry_of_namespace(namespace: &str) -> Option<String> {
    let registry = namespace.replacen('_', ":", 1);
    (mirror_namespace(&registry)? == namespace).then_some(registry)
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::IMAGE_MIRROR_ADDRESS;

    #[test]
    fn every_common_registry_has_a_mirror_of_its_own() {
        for registry in COMMON_REGISTRIES {
            let location =
                format!("location = \"{IMAGE_MIRROR_ADDRESS}/{}\"", mirror_namespace(registry).unwrap());
            assert_eq!(REGISTRIES_CONF.matches(&location).count(), 1, "{registry}");
        }
    }

    #[test]
    fn another_registry_gets_an_entry_unless_it_is_covered_or_none() {
        let entry = registry_entry("registry.example:5000").unwrap();
        assert!(entry.contains("prefix = \"registry.example:5000\"\n"), "{entry}");
        assert!(entry.contains("location = \"10.0.2.100:5000/registry.example_5000\"\n"), "{entry}");
        for none in [
            "docker.io",
            "",
            "UPPER.io",
            "a b",
            "x\"\n[[registry]]",
            "host:",
            "host:99999",
            "host:080",
            "-a.io",
        ] {
            assert_eq!(registry_entry(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn namespaces_are_unambiguous(registry in "[a-z0-9.:_-]{1,20}") {
            if let Some(namespace) = mirror_namespace(&registry) {
                prop_assert_eq!(registry_of_namespace(&namespace), Some(registry));
                prop_assert!(!namespace.contains([':', '/', '"']));
            }
        }

        #[test]
        fn any_text_is_answered(text in ".{0,80}") {
            let _ = (registry_entry(&text), registry_of_namespace(&text));
        }
    }
}
