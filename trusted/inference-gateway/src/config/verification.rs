//! Whose evidence counts, and how an upstream's is judged.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::checks::{Checked, rule};
use super::{GatewayConfig, ProviderKind, UpstreamConfig};

/// Shortest and longest time that a verification may hold, in seconds.
const LIFETIMES: RangeInclusive<u32> = 60..=86_400;
/// Longest public key of a KMS's certificate authority, in hex digits.
const MAX_ID_DIGITS: usize = 1024;

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

pub(super) fn check_trust(config: &GatewayConfig) -> Checked {
    let TrustConfig { production, development_root, development_pccs_url } = &config.trust;
    let (root, pccs) = (development_root.is_some(), development_pccs_url.is_some());
    rule(!(*production && root), "trust.development_root", "is never accepted in production")?;
    rule(root == pccs, "trust", "development_root and development_pccs_url need each other")?;
    let mut upstreams = config.upstreams.iter().enumerate();
    upstreams.try_for_each(|(index, upstream)| {
        let can_be_met = root || upstream.accepted_os_image_hashes.is_empty();
        rule(
            can_be_met || !upstream.accepted_boot_registers.is_empty(),
            &format!("upstreams[{index}].accepted_boot_registers"),
            "are needed: without trust.development_root nothing leads from an image to registers",
        )
    })
}

/// A gateway that answers for its upstreams has evidence, and sends prompts to no other machine. Names are left to no resolver,
/// for the network answers for what is not there, and of the loopback network only the addresses are taken at which no container
/// engine puts a resolver.
pub(super) fn check_direct(config: &GatewayConfig) -> Checked {
    if !config.direct_serving {
        return Ok(());
    }
    rule(
        config.agent_socket.is_some(),
        "direct_serving",
        "needs agent_socket: without evidence nothing is proved",
    )?;
    let mut upstreams = config.upstreams.iter().enumerate();
    upstreams.try_for_each(|(index, upstream)| {
        let at = format!("upstreams[{index}]");
        rule(!upstream.is_tee(), &at, "may not be one that proves what it is where direct_serving is on")?;
        let is_here = match upstream.base_url.host() {
            Some(Host::Ipv4(address)) => address == Ipv4Addr::LOCALHOST,
            Some(Host::Ipv6(address)) => address == Ipv6Addr::LOCALHOST,
            Some(Host::Domain(_)) | None => false,
        };
        let here =
            "has to be at 127.0.0.1 or [::1], such as http://127.0.0.1:8000, where direct_serving is on";
        rule(is_here, &format!("{at}.base_url"), here)
    })
}

pub(super) fn check_upstream(upstream: &UpstreamConfig, at: &str) -> Checked {
    let is_service = upstream.provider == ProviderKind::AciService;
    if is_service {
        rule(upstream.base_url.scheme() == "https", &format!("{at}.base_url"), "has to be https")?;
    }
    check_accepted(upstream, at, is_service)?;
    rule(
        LIFETIMES.contains(&upstream.verification_lifetime_s),
        &format!("{at}.verification_lifetime_s"),
        "has to be between 60 and 86400 seconds",
    )?;
    check_program(upstream, at, is_service)
}

/// A service has to be told by what runs there, what the machine booted, and who gave it its keys: one question that
/// is left open is open to whoever builds a machine of his own.
fn check_accepted(upstream: &UpstreamConfig, at: &str, is_service: bool) -> Checked {
    let hex_lists = [
        (&upstream.accepted_subjects, "app-id:0x", 40..=40, "accepted_subjects"),
        (&upstream.accepted_image_digests, "sha256:", 64..=64, "accepted_image_digests"),
        (&upstream.accepted_compose_hashes, "", 64..=64, "accepted_compose_hashes"),
        (&upstream.accepted_os_image_hashes, "", 64..=64, "accepted_os_image_hashes"),
        (&upstream.accepted_key_provider_ids, "", 2..=MAX_ID_DIGITS, "accepted_key_provider_ids"),
        (&upstream.accepted_kms_root_public_keys, "", 66..=66, "accepted_kms_root_public_keys"),
    ];
    let is_there =
        |wanted: &str| hex_lists.iter().any(|(list, .., name)| *name == wanted && !list.is_empty());
    let has_registers = !upstream.accepted_boot_registers.is_empty();
    if is_service {
        for (one, is_answered, others) in [
            (
                "accepted_subjects",
                is_there("accepted_compose_hashes") || is_there("accepted_image_digests"),
                "or accepted_compose_hashes or accepted_image_digests ",
            ),
            ("accepted_os_image_hashes", has_registers, "or accepted_boot_registers "),
            ("accepted_key_provider_ids", false, ""),
            ("accepted_kms_root_public_keys", false, ""),
        ] {
            let needed = format!("{others}is needed for provider 'aci-service'");
            rule(is_there(one) || is_answered, &format!("{at}.{one}"), &needed)?;
        }
    } else {
        let has_none = hex_lists.iter().all(|(list, ..)| list.is_empty()) && !has_registers;
        rule(
            has_none && upstream.pccs_url.is_none(),
            at,
            "only provider 'aci-service' has accepted_… and pccs_url",
        )?;
    }
    for (list, prefix, digits, name) in &hex_lists {
        let is_so = |text: &String| text.strip_prefix(prefix).is_some_and(|hex| is_hex(hex, digits));
        let (least, most) = (digits.start(), digits.end());
        let count = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let wanted = format!("have to be '{prefix}' and {count} lower-case hex digits");
        rule(list.iter().all(is_so), &format!("{at}.{name}"), &wanted)?;
    }
    let are_whole = upstream
        .accepted_boot_registers
        .iter()
        .all(|boot| [boot.mrtd, boot.rtmr0, boot.rtmr1, boot.rtmr2].iter().all(Option::is_some));
    rule(
        are_whole,
        &format!("{at}.accepted_boot_registers"),
        "need mrtd, rtmr0, rtmr1 and rtmr2 each: what is left out could be anything",
    )
}

fn check_program(upstream: &UpstreamConfig, at: &str, is_service: bool) -> Checked {
    let Some(program) = upstream.verifier_command.first() else {
        let is_plain =
            upstream.verifier_options.is_empty() && upstream.verifier_scope == VerifierScope::default();
        return rule(
            is_plain,
            &format!("{at}.verifier_options"),
            "and verifier_scope need a verifier_command",
        );
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

fn is_hex(text: &str, digits: &RangeInclusive<usize>) -> bool {
    digits.contains(&text.len())
        && text.len().is_multiple_of(2)
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl UpstreamConfig {
    /// Whether it can prove what it is.
    #[must_use]
    pub fn is_tee(&self) -> bool {
        self.provider == ProviderKind::AciService || !self.verifier_command.is_empty()
    }
}

impl GatewayConfig {
    /// Whether it can be proved what an upstream is: by what it shows, or by the gateway's own evidence.
    #[must_use]
    pub fn is_tee(&self, upstream: &UpstreamConfig) -> bool {
        self.direct_serving || upstream.is_tee()
    }

    /// The upstreams of which that can be proved.
    pub fn tee_upstreams(&self) -> impl Iterator<Item = &UpstreamConfig> {
        self.upstreams.iter().filter(|upstream| self.is_tee(upstream))
    }
}
