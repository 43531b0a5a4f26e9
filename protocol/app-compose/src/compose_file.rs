//! The compose file inside the document: only what must be known before a VM is started for it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::UserMessageFormatter;

/// Deepest nesting of mappings and lists.
pub const MAX_DEPTH: usize = 64;
/// Most nodes of the text, and, again, most nodes that aliases may repeat.
pub const MAX_NODES: usize = 20_000;
/// Most services.
pub const MAX_SERVICES: usize = 100;

/// A compose file that no engine could run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComposeFileError {
    /// Not YAML, beyond a limit (depth, size, aliases), or of another shape.
    #[error("not a usable compose file: {0}")]
    Yaml(String),
    /// There is nothing to run.
    #[error("the compose file has no services; name at least one under `services:`")]
    NoServices,
    /// More services than a CVM may have.
    #[error("the compose file has {0} services, more than the {MAX_SERVICES} allowed")]
    TooManyServices(usize),
}

/// What is known of a compose file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposeFile {
    /// Names of the services with the image of each, where it names one.
    services: BTreeMap<String, Option<String>>,
}

#[derive(Deserialize)]
struct Document {
    services: Option<BTreeMap<String, Option<Service>>>,
}

#[derive(Deserialize)]
struct Service {
    image: Option<String>,
}

impl ComposeFile {
    /// Reads the text within limits that hold for its expanded form too, so that a small text cannot
    /// stand for a huge document.
    pub fn parse(text: &str) -> Result<Self, ComposeFileError> {
        let document: Option<Document> = serde_saphyr::from_str_with_options(text, options())
            .map_err(|error| ComposeFileError::Yaml(describe(&error)))?;
        let services = document.and_then(|document| document.services).unwrap_or_default();
        match services.len() {
            0 => Err(ComposeFileError::NoServices),
            1..=MAX_SERVICES => Ok(Self {
                services: services
                    .into_iter()
                    .map(|(name, service)| (name, service.and_then(|service| service.image)))
                    .collect(),
            }),
            count => Err(ComposeFileError::TooManyServices(count)),
        }
    }

    /// Names of the services, sorted.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        self.services.keys().map(String::as_str)
    }

    /// Image references as written, one for each service that names one; variables are not expanded.
    pub fn images(&self) -> impl Iterator<Item = &str> {
        self.services.values().flatten().map(String::as_str)
    }

    /// Image reference of one service as written, if it names one.
    #[must_use]
    pub fn image(&self, service: &str) -> Option<&str> {
        self.services.get(service)?.as_deref()
    }
}

/// Limits that hold for the expanded form of a text, too.
pub(crate) fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_documents: 1,
            max_anchors: 1_000,
            max_aliases: 1_000,
            max_merge_keys: 1_000,
            max_recorded_anchor_events: MAX_NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: 16,
        },
    }
}

/// One line for a caller: what and where, without an excerpt of the text.
fn describe(error: &serde_saphyr::Error) -> String {
    const LONGEST: usize = 300;
    let text = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    text.lines().next().unwrap_or_default().chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn refusal(text: &str) -> String {
        ComposeFile::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn names_services_and_images() {
        let text = "x-base: &base {restart: always, image: a}\nservices:\n  web: {<<: *base, image: 'nginx:1'}\n  db:\n    build: .\n  job: *base\n";
        let file = ComposeFile::parse(text).unwrap();
        assert_eq!(file.services().collect::<Vec<_>>(), ["db", "job", "web"]);
        assert_eq!(file.images().collect::<Vec<_>>(), ["a", "nginx:1"]);
    }

    #[test]
    fn refuses_what_is_no_compose_file() {
        let texts = [
            "",
            "{}",
            "services:",
            "services: {}",
            "a",
            "- a",
            "services: [a]",
            "services: {a: b}",
            "services: {a: {image: [x]}}",
            "services: {",
            "a: 1\na: 2\nservices: {a: {}}",
            "\u{0}",
        ];
        let refusals: Vec<_> = texts.iter().map(|text| format!("{text:?}: {}", refusal(text))).collect();
        insta::assert_snapshot!(refusals.join("\n"));
    }

    #[test]
    fn bombs_are_refused_quickly() {
        let mut laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
        for level in 1..20 {
            let again = vec![format!("*a{}", level - 1); 9].join(", ");
            writeln!(laughs, "a{level}: &a{level} [{again}]").unwrap();
        }
        laughs.push_str("services: {a: {image: x, command: *a19}}\n");
        let used = "a: &a [x]\nservices: {a: {image: x, command: *a}}\n";
        assert!(ComposeFile::parse(used).is_ok());
        let started = Instant::now();
        for bomb in [
            laughs,
            format!("services: {}", "[".repeat(100_000)),
            format!("services: {}", "- ".repeat(100_000)),
            format!("services: {}", "{a: ".repeat(50_000)),
            "? ".repeat(100_000),
            "a: &a [*a]\nservices: *a".to_owned(),
            "---\n".repeat(40_000),
            "&a ".repeat(60_000),
            format!("services: {{a: [{}]}}", "1,".repeat(90_000)),
            format!("a: &a {{x: 1}}\nservices:\n{}", "  b: {<<: *a}\n".repeat(10_000)),
        ] {
            assert!(ComposeFile::parse(&bomb).is_err(), "{}", bomb.chars().take(40).collect::<String>());
        }
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }

    proptest! {
        #[test]
        fn never_panics(text in "[-?:&*!\\[\\]{}<> \n#'\"a-c0-9|]{0,200}") {
            let _: Result<_, _> = ComposeFile::parse(&text);
        }
    }
}
