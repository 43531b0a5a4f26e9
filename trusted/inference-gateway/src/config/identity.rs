//! What the gateway says about itself.

use serde::{Deserialize, Serialize};

use super::GatewayConfig;
use super::checks::{Checked, rule};

/// Shortest and longest time that a keyset may hold, in seconds: an hour, a year.
const LIFETIMES: std::ops::RangeInclusive<u64> = 3600..=31_536_000;
const MAX_TEXT: usize = 512;

pub(super) const fn default_keyset_lifetime_s() -> u64 {
    2_592_000
}

pub(super) const fn default_enable_e2ee() -> bool {
    true
}

/// What the gateway was built from. Whoever verifies wants a repository with a commit, or an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// Where the source is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo_url: Option<String>,
    /// The commit, 40 or 64 lower-case hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo_commit: Option<String>,
    /// `sha256:…` of the container image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    /// Where it is shown that the image was built from the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_provenance: Option<String>,
}

pub(super) fn check(config: &GatewayConfig) -> Checked {
    rule(
        LIFETIMES.contains(&config.keyset_lifetime_s),
        "keyset_lifetime_s",
        "has to be between 3600 and 31536000",
    )?;
    rule(
        config.subject.as_deref().is_none_or(is_text),
        "subject",
        "has to be 1 to 512 visible ASCII characters",
    )?;
    let Some(source) = &config.source else { return Ok(()) };
    let SourceConfig { repo_url, repo_commit, image_digest, image_provenance } = source;
    let says_something = (repo_url.is_some() && repo_commit.is_some()) || image_digest.is_some();
    rule(says_something, "source", "needs repo_url and repo_commit, or image_digest")?;
    let texts = [("repo_url", repo_url), ("image_provenance", image_provenance)];
    for (name, text) in texts {
        rule(
            text.as_deref().is_none_or(is_text),
            &format!("source.{name}"),
            "has to be 1 to 512 visible ASCII characters",
        )?;
    }
    rule(
        repo_commit.as_deref().is_none_or(|commit| is_hex(commit, &[40, 64])),
        "source.repo_commit",
        "has to be a whole commit: 40 or 64 lower-case hex digits",
    )?;
    rule(
        image_digest
            .as_deref()
            .is_none_or(|digest| digest.strip_prefix("sha256:").is_some_and(|hash| is_hex(hash, &[64]))),
        "source.image_digest",
        "has to be sha256: and 64 lower-case hex digits",
    )
}

fn is_text(text: &str) -> bool {
    (1..=MAX_TEXT).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_hex(text: &str, lengths: &[usize]) -> bool {
    lengths.contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
