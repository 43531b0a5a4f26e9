//! A document made from another one by replacing some of its members. Tenants and the service do the same here,
//! so that a tenant knows the hash of what it asks for before the service says it.

use serde_json::{Value, json};

use crate::{AppCompose, ComposeError, canonical};

/// The members that a change replaces; what is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revision {
    /// Compose file of the runner `docker-compose`.
    pub docker_compose_file: Option<String>,
    /// Script that the guest runs before the application starts; an empty text removes it.
    pub pre_launch_script: Option<String>,
    /// Names of the variables that the application takes from its sealed environment.
    pub allowed_envs: Option<Vec<String>>,
    /// Whether logs are served to anybody.
    pub public_logs: Option<bool>,
    /// Whether system figures are served to anybody.
    pub public_sysinfo: Option<bool>,
    /// Whether measurements are served to anybody.
    pub public_tcbinfo: Option<bool>,
}

impl Revision {
    fn members(&self) -> [(&'static str, Option<Value>); 6] {
        [
            ("docker_compose_file", self.docker_compose_file.as_ref().map(|text| json!(text))),
            ("pre_launch_script", self.pre_launch_script.as_ref().map(|text| json!(text))),
            ("allowed_envs", self.allowed_envs.as_ref().map(|names| json!(names))),
            ("public_logs", self.public_logs.map(Value::Bool)),
            ("public_sysinfo", self.public_sysinfo.map(Value::Bool)),
            ("public_tcbinfo", self.public_tcbinfo.map(Value::Bool)),
        ]
    }
}

impl AppCompose {
    /// The document with some members replaced and all others, known or not, kept. A change that changes
    /// nothing gives the very same bytes; another one gives the compact form.
    ///
    /// # Errors
    /// As [`crate::Draft::prepare`]: a program that is missing, no compose file or too long with its script.
    pub fn revised(&self, revision: &Revision) -> Result<Self, ComposeError> {
        let mut document = self.document().clone();
        for (name, value) in revision.members() {
            match value {
                Some(Value::String(text)) if text.is_empty() && name == "pre_launch_script" => {
                    document.remove(name);
                }
                Some(value) => {
                    document.insert(name.to_owned(), value);
                }
                None => {}
            }
        }
        if document == *self.document() {
            return Ok(self.clone());
        }
        let revised = Self::parse(&canonical::compact(&Value::Object(document)))?;
        revised.members().check()?;
        Ok(revised)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMPOSE: &str = "services:\n  web:\n    image: hello\n";

    fn original() -> AppCompose {
        let text = json!({
            "name": "web", "runner": "docker-compose", "manifest_version": 2, "x-unknown": {"kept": [1, null]},
            "docker_compose_file": COMPOSE, "pre_launch_script": "true", "allowed_envs": ["A"],
        });
        // Not the compact form: somebody else wrote it.
        AppCompose::parse(format!("{text:#}").as_bytes()).unwrap()
    }

    #[test]
    fn what_changes_nothing_keeps_the_bytes() {
        let same = Revision { docker_compose_file: Some(COMPOSE.to_owned()), ..Revision::default() };
        for revision in [Revision::default(), same] {
            assert_eq!(original().revised(&revision).unwrap().bytes(), original().bytes());
        }
    }

    #[test]
    fn an_empty_script_is_removed() {
        let revision = Revision { pre_launch_script: Some(String::new()), ..Revision::default() };
        assert!(!original().revised(&revision).unwrap().document().contains_key("pre_launch_script"));
    }

    #[test]
    fn what_cannot_run_is_refused() {
        let compose = |text: &str| Revision { docker_compose_file: Some(text.into()), ..Revision::default() };
        assert!(matches!(original().revised(&compose(" ")), Err(ComposeError::MissingProgram(_))));
        assert!(matches!(original().revised(&compose("services: []")), Err(ComposeError::ComposeFile(_))));
        let room = crate::MAX_COMBINED_BYTES - "true".len() - COMPOSE.len();
        let padded = |extra: usize| compose(&format!("{COMPOSE}{}", "#".repeat(room + extra)));
        assert!(original().revised(&padded(0)).is_ok());
        assert!(matches!(original().revised(&padded(1)), Err(ComposeError::TooLarge(_))));
        let names = Revision { allowed_envs: Some(vec!["A=B".to_owned()]), ..Revision::default() };
        assert!(matches!(original().revised(&names), Err(ComposeError::EnvName(_))));
    }

    proptest! {
        #[test]
        fn only_what_is_named_changes(
            names in proptest::option::of(proptest::collection::vec("[A-Z][A-Z0-9_]{0,8}", 0..4)),
            script in proptest::option::of("[ -~]{0,40}"),
            flags in any::<[Option<bool>; 3]>(),
        ) {
            let revision = Revision {
                docker_compose_file: None,
                pre_launch_script: script,
                allowed_envs: names,
                public_logs: flags[0],
                public_sysinfo: flags[1],
                public_tcbinfo: flags[2],
            };
            let revised = original().revised(&revision).unwrap();
            prop_assert_eq!(revised.compose_hash(), crate::ComposeHash::of(revised.bytes()));
            for (name, value) in original().document() {
                let replaced = revision.members().iter().any(|(member, new)| member == name && new.is_some());
                prop_assert!(replaced || revised.document().get(name) == Some(value));
            }
            prop_assert_eq!(&revised.revised(&revision).unwrap(), &revised);
        }
    }
}
