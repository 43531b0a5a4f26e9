//! Where a service says that its software comes from.

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

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| is_hex(hex, 64))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
