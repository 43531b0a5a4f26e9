//! The application that is deployed: its app-compose document, final before the server sees it.

use std::path::Path;

use cloister_app_compose::decode::{self, Source};
use cloister_app_compose::{Additions, AppCompose, ComposeHash, Draft, MAX_COMBINED_BYTES};
use cloister_management_api::CvmName;
use serde_json::{Map, Value, json};

use super::key_provider::KeyProviderId;
use crate::failure::Failure;
use crate::files;

/// What a document is made of.
#[derive(Debug, Default)]
pub(crate) struct Parts<'a> {
    /// Text of the compose file.
    pub(crate) compose_file: &'a str,
    /// Text of the script that runs before the application.
    pub(crate) pre_launch_script: Option<&'a str>,
    /// Whether anybody may read the logs.
    pub(crate) public_logs: bool,
    /// Names of variables that it takes from its sealed environment.
    pub(crate) allowed_envs: &'a [&'a str],
    /// The KMS that its keys have to come from; `None` takes any.
    pub(crate) key_provider_id: Option<KeyProviderId>,
}

/// An application with a name and a document that the server must take as it is.
#[derive(Debug)]
pub(crate) struct App {
    name: CvmName,
    compose: AppCompose,
}

impl App {
    /// Checks everything that can be checked without the server. The document is completed with the
    /// service's defaults here, so that its hash is known before the server says it.
    pub(crate) fn new(name: CvmName, parts: &Parts<'_>) -> Result<Self, Failure> {
        let members = json!({
            "name": name.as_str(),
            "docker_compose_file": parts.compose_file,
            "pre_launch_script": parts.pre_launch_script,
            "public_logs": parts.public_logs,
            "public_sysinfo": false,
            "allowed_envs": parts.allowed_envs,
            "key_provider_id": parts.key_provider_id.as_ref().map(KeyProviderId::as_str),
        });
        let wrong = |error| Failure::usage("the compose file cannot be used").caused_by(error);
        let draft: Draft = decode::decode(&members, Source::Json, &[])
            .map_err(|faults| wrong(cloister_app_compose::ComposeError::Members(faults)))?;
        let compose = draft.prepare(&Additions::default()).map_err(wrong)?;
        Ok(Self { name, compose })
    }

    /// Name of the CVM.
    pub(crate) const fn name(&self) -> &CvmName {
        &self.name
    }

    /// Hash under which the guest is measured.
    pub(crate) fn compose_hash(&self) -> ComposeHash {
        self.compose.compose_hash()
    }

    /// The document.
    pub(crate) const fn document(&self) -> &Map<String, Value> {
        self.compose.document()
    }
}

/// Reads a text file that is not larger than an app may be.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    files::read_text(path, MAX_COMBINED_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    fn app(compose_file: &str) -> Result<App, Failure> {
        App::new("hello".parse().unwrap(), &Parts { compose_file, ..Parts::default() })
    }

    #[test]
    fn a_completed_document_is_not_changed_by_the_server() {
        let app = app("services:\n  web:\n    image: nginx\n").unwrap();
        let again: Draft = decode::decode(&Value::Object(app.document().clone()), Source::Json, &[]).unwrap();
        let prepared = again.prepare(&Additions { name: "hello", ..Additions::default() }).unwrap();
        assert_eq!(prepared.compose_hash(), app.compose_hash());
    }

    #[test]
    fn what_is_no_compose_file_is_refused_here() {
        for text in ["", "services: []", "- a", "services:\n  web: {image: nginx", "hello"] {
            assert_eq!(app(text).unwrap_err().exit, Exit::Usage, "{text}");
        }
    }
}
