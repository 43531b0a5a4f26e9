//! What is verified, and how: the part of an upstream's configuration that a verification depends on.

use std::path::PathBuf;
use std::time::Duration;

use cloister_verifier::appraisal::ExpectedRegisters;
use serde_json::{Map, Value};
use url::Url;

use crate::config::{ProviderKind, UpstreamConfig, VerifierScope};
use crate::routing::Route;

/// What is verified. A configuration with another one is verified anew.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    /// The upstream's name.
    pub(super) name: String,
    /// `https://host`, with a port that is not 443.
    pub(super) origin: String,
    /// Where it answers.
    pub(super) base_url: Url,
    /// Until a connection stands.
    pub(super) connect: Duration,
    /// Until it is verified.
    pub(super) patience: Duration,
    /// File with further authorities for TLS.
    pub(super) ca_file: Option<PathBuf>,
    /// Seconds that a verification holds.
    pub(super) lifetime: u64,
    /// How it is verified.
    pub(super) method: Method,
}

/// How an upstream is verified.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Method {
    /// By the gateway.
    AciService(Accepted),
    /// By a program.
    Program(Program),
}

/// What an `aci-service` may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    /// `app-id:0x…`
    pub(super) subjects: Vec<String>,
    /// `sha256:…`
    pub(super) image_digests: Vec<String>,
    /// Hashes of compose documents, hex.
    pub(super) compose_hashes: Vec<String>,
    /// What the machine may have booted, all registers of each.
    pub(super) boot_registers: Vec<ExpectedRegisters>,
    /// Hashes of guest images, hex.
    pub(super) os_image_hashes: Vec<String>,
    /// Whom the machine may have its keys from: public keys of KMSes' certificate authorities, DER in hex.
    pub(super) key_providers: Vec<String>,
    /// Compressed secp256k1 keys, hex.
    pub(super) kms_roots: Vec<String>,
    /// Collateral service, where it is not the vendor's own.
    pub(super) pccs_url: Option<Url>,
}

/// A program that verifies.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Program {
    /// Absolute path, and arguments.
    pub(super) command: Vec<String>,
    /// What it is told.
    pub(super) options: Map<String, Value>,
    /// How the upstream speaks.
    pub(super) provider: ProviderKind,
    /// The one model that it is about, by the upstream's name; `None` is all.
    pub(super) model: Option<String>,
}

impl Target {
    /// What is verified for a route; `None` if its upstream proves nothing.
    pub(super) fn of(route: &Route) -> Option<Self> {
        let upstream: &UpstreamConfig = &route.upstream;
        let method = match upstream.provider {
            ProviderKind::AciService => Method::AciService(Accepted {
                subjects: upstream.accepted_subjects.clone(),
                image_digests: upstream.accepted_image_digests.clone(),
                compose_hashes: upstream.accepted_compose_hashes.clone(),
                boot_registers: upstream.accepted_boot_registers.clone(),
                os_image_hashes: upstream.accepted_os_image_hashes.clone(),
                key_providers: upstream.accepted_key_provider_ids.clone(),
                kms_roots: upstream.accepted_kms_root_public_keys.clone(),
                pccs_url: upstream.pccs_url.clone(),
            }),
            _ if upstream.verifier_command.is_empty() => return None,
            provider => Method::Program(Program {
                command: upstream.verifier_command.clone(),
                options: upstream.verifier_options.clone(),
                provider,
                model: Self::model_of(route).map(str::to_owned),
            }),
        };
        Some(Self {
            name: upstream.name.clone(),
            origin: upstream.base_url.origin().ascii_serialization(),
            base_url: upstream.base_url.clone(),
            connect: Duration::from_secs(upstream.timeouts.connect.into()),
            patience: Duration::from_secs(upstream.timeouts.verification.into()),
            ca_file: upstream.ca_file.clone(),
            lifetime: upstream.verification_lifetime_s.into(),
            method,
        })
    }

    /// The model that a verification for a route is about, by the upstream's name; `None` is all.
    pub(super) fn model_of(route: &Route) -> Option<&str> {
        (route.upstream.verifier_scope == VerifierScope::Model).then_some(route.upstream_model.as_str())
    }

    /// The one model that it is about.
    pub(super) fn model(&self) -> Option<&str> {
        match &self.method {
            Method::Program(program) => program.model.as_deref(),
            Method::AciService(_) => None,
        }
    }
}
