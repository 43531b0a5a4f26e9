//! Compose files that run images as they are, and nothing else: whoever knows the images knows the software.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::compose_file::{MAX_SERVICES, options};

/// Sockets of the guest agent, below `/run` and `/var/run`: the only thing of the machine that may be mounted.
const AGENT_SOCKETS: [&str; 4] = ["cloister.sock", "dstack.sock", "tappd.sock", "dstack/dstack.sock"];
/// What a file may be written with beside letters and digits. Variables, aliases, tags, escapes and block texts have
/// none of their characters here: readers differ in what those mean.
const PUNCTUATION: &[u8] = b" \n\"'#,-./:@[]_{}";

/// Anything that is not listed might decide what runs, and is an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    services: BTreeMap<String, Service>,
    #[serde(default, rename = "name")]
    _name: IgnoredAny,
    #[serde(default, rename = "version")]
    _version: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    image: String,
    #[serde(default)]
    volumes: Vec<String>,
    #[serde(default, rename = "container_name")]
    _container_name: IgnoredAny,
    #[serde(default, rename = "depends_on")]
    _depends_on: IgnoredAny,
    #[serde(default, rename = "expose")]
    _expose: IgnoredAny,
    #[serde(default, rename = "ports")]
    _ports: IgnoredAny,
    #[serde(default, rename = "read_only")]
    _read_only: IgnoredAny,
    #[serde(default, rename = "restart")]
    _restart: IgnoredAny,
}

/// Image references of a compose file, one for each service, as they are written. `None` if it is none, or says
/// anything that could change what the images do: commands, environments, files, mounts but for the guest agent's
/// sockets, included or extended files, or a member that is not known here.
#[must_use]
pub fn images_only(text: &str) -> Option<Vec<String>> {
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || PUNCTUATION.contains(&byte)) {
        return None;
    }
    let document: Document = serde_saphyr::from_str_with_options(text, options()).ok()?;
    let services = document.services;
    let is_plain = (1..=MAX_SERVICES).contains(&services.len())
        && services.values().flat_map(|service| &service.volumes).all(|volume| is_agent(volume));
    is_plain.then(|| services.into_values().map(|service| service.image).collect())
}

/// Whether a mount is a socket of the guest agent, at its own place.
fn is_agent(volume: &str) -> bool {
    let volume = volume.strip_suffix(":ro").unwrap_or(volume);
    volume.split_once(':').is_some_and(|(source, target)| {
        let name = source.strip_prefix("/var").unwrap_or(source).strip_prefix("/run/");
        source == target && name.is_some_and(|name| AGENT_SOCKETS.contains(&name))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: &str = "# a gateway\nname: gateway\nversion: '3.8'\nservices:\n  gateway:\n    image: gateway@sha256:11\n    \
                         container_name: gateway\n    restart: always\n    read_only: true\n    ports: ['443:8086']\n    \
                         expose: [8086]\n    depends_on: [other]\n    volumes:\n      - /var/run/dstack.sock:/var/run/dstack.sock\n      \
                         - \"/run/cloister.sock:/run/cloister.sock:ro\"\n  other: {image: other}\n";

    #[test]
    fn what_is_plain_tells_its_images() {
        assert_eq!(images_only(PLAIN).unwrap(), ["gateway@sha256:11", "other"]);
    }

    #[test]
    fn whatever_changes_what_runs_is_not_plain() {
        for member in [
            "command: [sh]",
            "entrypoint: sh",
            "environment: [UPSTREAM=evil]",
            "env_file: .env",
            "configs: [evil]",
            "secrets: [evil]",
            "extends: {service: evil}",
            "build: .",
            "privileged: true",
            "pid: host",
            "network_mode: host",
            "networks: [evil]",
            "devices: [/dev/kmsg]",
            "cap_add: [ALL]",
            "user: root",
            "working_dir: /evil",
            "healthcheck: {test: evil}",
            "post_start: [{command: evil}]",
            "develop: {}",
            "volumes: [data:/app]",
            "volumes: [/:/host]",
            "volumes: [/var/run/docker.sock:/var/run/docker.sock]",
            "volumes: [/var/run/dstack.sock:/etc/ld.so.preload]",
            "volumes: [/run/../run/dstack.sock:/run/../run/dstack.sock]",
            "volumes: [{type: bind, source: /, target: /}]",
            "volumes: [/evil]",
            "image: other",
            "x-unknown: 1",
            "unknown: 1",
        ] {
            let text = PLAIN.replace("    restart: always\n", &format!("    {member}\n"));
            // A member that stands there twice is an error of its own.
            let text = if member.starts_with("volumes") {
                text.split("    volumes:\n").next().unwrap().to_owned()
            } else {
                text
            };
            assert_eq!(images_only(&text), None, "{member}");
        }
        for beside in [
            "include: [evil.yml]",
            "configs: {evil: {content: evil}}",
            "secrets: {evil: {file: evil}}",
            "volumes: {data: {driver_opts: {device: /}}}",
            "networks: {}",
            "x-evil: 1",
        ] {
            assert_eq!(images_only(&format!("{PLAIN}{beside}\n")), None, "{beside}");
        }
        for text in [
            "",
            "services: {}",
            "services: {a: {}}",
            "services: {a: }",
            "services: {a: {image: [a]}}",
            "services: {a: {image: a}, a: {image: b}}",
            "services: {a: {image: '${IMAGE}'}}",
            "services: {a: &a {image: a}, b: *a}",
            "services: {a: !override {image: a}}",
            "services: {a: {image: \"\\x61\"}}",
            "services: {a: {image: a}}\n---\nservices: {a: {image: b}}",
            "services: {a: {image: \u{e9}}}",
        ] {
            assert_eq!(images_only(text), None, "{text}");
        }
    }

    proptest! {
        /// A member more is never overlooked, whatever its name.
        #[test]
        fn no_name_is_overlooked(name in "[a-z_]{1,12}") {
            let known = ["image", "volumes", "container_name", "depends_on", "expose", "ports", "read_only", "restart"];
            let text = format!("services: {{a: {{image: a, {name}: []}}}}");
            prop_assert_eq!(images_only(&text).is_some(), known.contains(&name.as_str()) && name != "image");
        }
    }
}
