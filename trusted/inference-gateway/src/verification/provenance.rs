//! Where a service's software comes from.

use std::collections::BTreeSet;

use cloister_app_compose::{AppCompose, ComposeFile};
use serde::Deserialize;

use super::reason::Reason;

/// Longest text that is passed on, in characters.
const MAX_TEXT: usize = 512;

/// What a service says of its source.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Provenance {
    /// Where the source is.
    #[serde(default)]
    pub(super) repo_url: Option<String>,
    /// Which commit, 40 or 64 hex digits.
    #[serde(default)]
    pub(super) repo_commit: Option<String>,
    /// Which image, `sha256:` and 64 hex digits.
    #[serde(default)]
    pub(super) image_digest: Option<String>,
}

impl Provenance {
    /// Whether enough is said, and in a form that means one thing: a repository with a full commit, or an image.
    pub(super) fn check(&self) -> Result<(), Reason> {
        let is_commit =
            self.repo_commit.as_ref().is_none_or(|commit| is_hex(commit, 40) || is_hex(commit, 64));
        let is_image = self.image_digest.as_ref().is_none_or(|digest| is_digest(digest));
        if !is_commit || !is_image {
            return Err("the source is named by no full commit or digest".into());
        }
        match (&self.repo_url, &self.repo_commit, &self.image_digest) {
            (Some(url), Some(_), _) if url.chars().count() <= MAX_TEXT => Ok(()),
            (None, _, Some(_)) | (Some(_), None, Some(_)) => Ok(()),
            _ => Err("the report does not say where the software comes from".into()),
        }
    }
}

/// Whether a measured compose document runs nothing but accepted images. What a service says of itself is not bound
/// to its evidence; this is. Scripts that run before the containers, and images without a digest, are software that
/// no accepted digest covers.
pub(super) fn runs_only(app_compose: &str, accepted: &[String]) -> bool {
    let accepted: BTreeSet<&str> = accepted.iter().map(String::as_str).collect();
    let Ok(document) = AppCompose::parse(app_compose.as_bytes()) else { return false };
    let members = document.members();
    let scripts = [&members.init_script, &members.pre_launch_script, &members.bash_script];
    if scripts.into_iter().flatten().any(|script| !script.is_empty()) {
        return false;
    }
    let Some(Ok(file)) = members.docker_compose_file.as_deref().map(ComposeFile::parse) else { return false };
    file.services().all(|service| {
        file.image(service)
            .and_then(|image| image.split_once('@'))
            .is_some_and(|(_, digest)| accepted.contains(digest))
    })
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| is_hex(hex, 64))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
