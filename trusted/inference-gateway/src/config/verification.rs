//! Whose evidence counts, and how an upstream's is judged.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use url::Url;

use super::checks::{Checked, rule};
use super::{GatewayConfig, ProviderKind, UpstreamConfig};

/// Shortest and longest time that a verification may hold, in seconds.
const LIFETIMES: std::ops::RangeInclusive<u32> = 60..=86_400;

pub(super) const fn default_lifetime_s() -> u32 {
    300
}

/// Whose evidence counts beside that of the hardware's vendors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrustConfig {
    /// Hardware only: a development root is refused.
    pub production: bool,
    /// Certificate of a development root, PEM. Nothing protects what it vouches for.
    pub development_root: Option<PathBuf>,
    /// Collateral service of the development root's vendor.
    pub development_pccs_url: Option<Url>,
}

/// What one verification by a program is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifierScope {
    /// One channel for all models of the upstream.
    #[default]
    Router,
    /// One channel for each model.
    Model,
}

pub(super) fn check_trust(trust: &TrustConfig) -> Checked {
    let TrustConfig { production, development_root, development_pccs_url } = trust;
    let (root, pccs) = (development_root.is_some(), development_pccs_url.is_some());
    rule(!(*production && root), "trust.development_root", "is never accepted in production")?;
    rule(root == pccs, "trust", "development_root and development_pccs_url need each other")
}

pub(super) fn check_upstream(upstream: &UpstreamConfig, at: &str) -> Checked {
    let is_service = upstream.provider == ProviderKind::AciService;
    let accepts_nothing = upstream.accepted_subjects.is_empty() && upstream.accepted_image_digests.is_empty();
    if is_service {
        rule(upstream.base_url.scheme() == "https", &format!("{at}.base_url"), "has to be https")?;
        rule(
            !accepts_nothing,
            &format!("{at}.accepted_subjects"),
            "or accepted_image_digests is needed for provider 'aci-service'",
        )?;
        rule(
            !upstream.accepted_kms_root_public_keys.is_empty(),
            &format!("{at}.accepted_kms_root_public_keys"),
            "is needed for provider 'aci-service'",
        )?;
    } else {
        let has_none = accepts_nothing
            && upstream.accepted_kms_root_public_keys.is_empty()
            && upstream.pccs_url.is_none();
        rule(has_none, at, "only provider 'aci-service' has accepted_… and pccs_url")?;
    }
    for (list, prefix, digits, name) in [
        (&upstream.accepted_subjects, "app-id:0x", 40, "accepted_subjects"),
        (&upstream.accepted_image_digests, "sha256:", 64, "accepted_image_digests"),
        (&upstream.accepted_kms_root_public_keys, "", 66, "accepted_kms_root_public_keys"),
    ] {
        let are_so = list.iter().all(|text| text.strip_prefix(prefix).is_some_and(|hex| is_hex(hex, digits)));
        let at = format!("{at}.{name}");
        rule(are_so, &at, &format!("have to be '{prefix}' and {digits} lower-case hex digits"))?;
    }
    rule(
        LIFETIMES.contains(&upstream.verification_lifetime_s),
        &format!("{at}.verification_lifetime_s"),
        "has to be between 60 and 86400 seconds",
    )?;
    check_program(upstream, at, is_service)
}

fn check_program(upstream: &UpstreamConfig, at: &str, is_service: bool) -> Checked {
    let Some(program) = upstream.verifier_command.first() else {
        let is_plain =
            upstream.verifier_options.is_empty() && upstream.verifier_scope == VerifierScope::default();
        let can_be_verified = is_service || !upstream.require_verified;
        rule(is_plain, &format!("{at}.verifier_options"), "and verifier_scope need a verifier_command")?;
        return rule(can_be_verified, &format!("{at}.require_verified"), "can never hold for this upstream");
    };
    let at = format!("{at}.verifier_command");
    rule(Path::new(program).is_absolute(), &at, "has to begin with the absolute path of a program")?;
    rule(!is_service, &at, "is not for provider 'aci-service', which the gateway verifies itself")?;
    rule(
        upstream.base_url.scheme() == "https",
        &at,
        "needs a base_url with https: nothing else can be pinned",
    )
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl UpstreamConfig {
    /// Whether it can prove what it is.
    #[must_use]
    pub fn is_tee(&self) -> bool {
        self.provider == ProviderKind::AciService || !self.verifier_command.is_empty()
    }
}

impl GatewayConfig {
    /// The upstreams that can prove what they are.
    pub fn tee_upstreams(&self) -> impl Iterator<Item = &UpstreamConfig> {
        self.upstreams.iter().filter(|upstream| upstream.is_tee())
    }
}
