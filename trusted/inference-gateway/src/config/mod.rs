//! The operator's file: what is served, by whom, and to whom.
//!
//! JSON. A member that is not known is refused: a rule with a typing error must not be a rule that does not hold.

mod checks;
mod complaint;
mod fixed;
mod identity;
mod remarks;
#[cfg(test)]
mod tests;
mod verification;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use cloister_verifier::appraisal::ExpectedRegisters;
use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize};
use url::Url;
use zeroize::Zeroizing;

use crate::format::reasoning::Dialect;

pub use identity::SourceConfig;
pub use verification::{TrustConfig, VerifierScope};

/// What a gateway serves.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Where it listens.
    #[serde(default = "default_bind")]
    pub bind: SocketAddr,
    /// Directory for receipts, sessions and usage; made when absent.
    pub state_dir: PathBuf,
    /// Who may ask. An empty list lets nobody in.
    #[serde(default)]
    pub keys: Vec<KeyConfig>,
    /// Who answers.
    pub upstreams: Vec<UpstreamConfig>,
    /// What is told about models, and what they cost.
    #[serde(default)]
    pub models: Vec<ModelConfig>,
    /// Milliseconds of silence in a stream after which the client gets a comment, before the first content with the
    /// head; 0 is never.
    #[serde(default = "default_keepalive_ms")]
    pub sse_keepalive_ms: u64,
    /// Milliseconds for which an answer is read on that its client does not wait for any more, to learn what it used; 0
    /// is never.
    #[serde(default = "default_read_on_ms")]
    pub read_on_ms: u64,
    /// Whose evidence counts.
    #[serde(default)]
    pub trust: TrustConfig,
    /// Milliseconds, up to twice as many by chance, after which upstreams that were all busy are asked once more; 0 is
    /// never.
    #[serde(default = "default_capacity_retry_ms")]
    pub capacity_retry_ms: u64,
    /// Host names that serve confidential models only, whatever a client asks for.
    #[serde(default)]
    pub tee_hosts: Vec<String>,
    /// Memory that bodies of all requests and answers may have together, in MiB.
    #[serde(default = "default_body_memory_mib")]
    pub body_memory_mib: usize,
    /// Microseconds for which a gateway with one processor looks for what comes next, while that pays, instead of sleeping;
    /// 0 is never.
    #[serde(default = "default_busy_poll_us")]
    pub busy_poll_us: u64,
    /// Certificate of the listener; without one it speaks plain HTTP.
    #[serde(default)]
    pub tls: Option<TlsConfig>,
    /// File with the operator's token; without one nobody has figures or may replace upstreams.
    #[serde(default)]
    pub admin_token_file: Option<PathBuf>,
    /// Who decides instead of `keys` whether a request is answered.
    #[serde(default)]
    pub control: Option<ControlConfig>,
    /// How long receipts are kept.
    #[serde(default)]
    pub receipts: ReceiptsConfig,
    /// A listener for figures alone, without a token, for a network that is the operator's.
    #[serde(default)]
    pub metrics_bind: Option<SocketAddr>,
    /// Who is told how requests went; without it nobody is.
    #[serde(default)]
    pub traces: Option<TracesConfig>,
    /// Whether the models run in this machine, so that the gateway's own evidence is about them, too: upstreams are reached at
    /// loopback addresses only, and receipts name none. Cannot be changed without a restart.
    #[serde(default)]
    pub direct_serving: bool,
    /// Socket of the guest agent, which gives keys and evidence; without one keys are made at the start and nothing is
    /// proved.
    #[serde(default)]
    pub agent_socket: Option<PathBuf>,
    /// Seconds that a keyset holds; a new one is there before it ends.
    #[serde(default = "identity::default_keyset_lifetime_s")]
    pub keyset_lifetime_s: u64,
    /// Whose keyset it is; without one `app-id:0x…` of the machine.
    #[serde(default)]
    pub subject: Option<String>,
    /// What the gateway was built from, as reports tell it.
    #[serde(default)]
    pub source: Option<SourceConfig>,
    /// Whether clients may encrypt fields to the gateway.
    #[serde(default = "identity::default_enable_e2ee")]
    pub enable_e2ee: bool,
}

/// Certificate of the listener: one in files, which are read again when they change, or one that the gateway makes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// PEM chain, the server's own certificate first.
    pub certificate: Option<PathBuf>,
    /// PEM private key of that certificate.
    pub key: Option<PathBuf>,
    /// Instead of files: a certificate that nobody vouches for, of a key that the keyset names. With `agent_socket` the key is
    /// the application's, and the same at every start and in every replica.
    pub self_signed: bool,
}

/// Files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// PEM private key of that certificate.
    pub key: PathBuf,
}

impl TlsConfig {
    /// The files, unless the gateway makes its certificate.
    #[must_use]
    pub fn files(&self) -> Option<TlsFiles> {
        let (certificate, key) = (self.certificate.clone()?, self.key.clone()?);
        Some(TlsFiles { certificate, key })
    }
}

/// A control plane that is asked before each request and told after it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlConfig {
    /// Where `/consult/pre` and `/consult/post` are, such as `https://api.example.com/internal/inference`.
    pub url: Url,
    /// File with the token that is presented to it.
    pub token_file: PathBuf,
    /// File with authorities that may speak for it, PEM, beside those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Milliseconds until it has to have answered.
    #[serde(default = "default_control_timeout_ms")]
    pub timeout_ms: u64,
    /// File with a secret of at least 32 bytes, text: under it the first 4,096 bytes of what is said with a key are hashed, and
    /// the control plane is told that hash as `prefixHash`, so that requests that begin alike can go where such a one went.
    /// Without it nothing like that is told.
    #[serde(default)]
    pub prefix_hash_secret_file: Option<PathBuf>,
    /// Whether it is told what a request is like: estimated tokens, tools, modalities, reasoning, format, and what it begins
    /// with. What it may cost it is told in any case.
    #[serde(default = "default_send_request_features")]
    pub send_request_features: bool,
    /// What may be spent, in the currency of the prices, before it has been told of it: beyond that requests are
    /// refused.
    #[serde(default = "default_untold_limit")]
    pub untold_limit: Decimal,
}

/// A collector of OpenTelemetry. What it is told says nothing of what was said; a change holds from the next start.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracesConfig {
    /// Where it takes OTLP over HTTP, in protobuf, such as `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: Url,
    /// File with headers that it asks for: a JSON object of names and values.
    #[serde(default)]
    pub headers_file: Option<PathBuf>,
    /// File with authorities that may speak for it, PEM, beside those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Share of the traces that it is told, from 0 to 1. Whoever asks does not choose which.
    #[serde(default = "default_sample_ratio")]
    pub sample_ratio: f64,
}

/// Receipts, and the log that anybody may compare them with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiptsConfig {
    /// Seconds for which receipts are kept; at least an hour.
    pub retention_s: u64,
    /// Seconds for which usage rows are kept; those that a control plane was told stay a week at most.
    pub usage_retention_s: u64,
    /// Whether each receipt's hash is appended to a public log. It grows by some 250 bytes for each request, and tells
    /// anybody how many there are.
    pub log: bool,
}

impl Default for ReceiptsConfig {
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Self { retention_s: 7 * DAY, usage_retention_s: 400 * DAY, log: true }
    }
}

/// A key that may ask. The key itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// Name for people, unique.
    pub name: String,
    /// SHA-256 of the key, 64 lower-case hex digits.
    pub sha256: String,
    /// Requests that may begin in a minute.
    #[serde(default)]
    pub requests_per_minute: Option<u32>,
    /// Tokens that may be used in a minute.
    #[serde(default)]
    pub tokens_per_minute: Option<u64>,
    /// Models that it may use; `None` is all.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// What it may spend, in the currency of the prices; `None` is no limit.
    #[serde(default)]
    pub credit: Option<Decimal>,
}

/// How an upstream speaks, and what it can prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// OpenAI's format, proves nothing.
    #[default]
    OpenaiCompatible,
    /// Anthropic's format, proves nothing.
    Anthropic,
    /// A confidential inference service: OpenAI's format, and proof.
    AciService,
}

/// A credential. It has no readable form.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(Zeroizing<String>);

impl Credential {
    /// The secret.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Credential {
    fn from(secret: String) -> Self {
        Self(Zeroizing::new(secret))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credential")
    }
}

impl<'de> Deserialize<'de> for Credential {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Limits in time, in seconds; none may be 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Until a connection stands.
    pub connect: u32,
    /// Until the first content of a stream.
    pub first_byte: u32,
    /// Between two pieces of an answer, and until one begins that comes at once: its first byte comes with its last.
    pub idle: u32,
    /// Until an answer is whole; `None` lets a healthy stream go on.
    pub total: Option<u32>,
    /// Until what the upstream proves is verified.
    pub verification: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: 10, first_byte: 120, idle: 600, total: None, verification: 60 }
    }
}

/// Who answers.
#[expect(clippy::struct_excessive_bools, reason = "they are members of a file, each for itself")]
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// Its name, unique; it appears in receipts and route ids.
    pub name: String,
    /// How it speaks.
    #[serde(default)]
    pub provider: ProviderKind,
    /// Where it answers, such as `https://api.example.com`.
    pub base_url: Url,
    /// Path of its chat surface, as it is sent, where that is not `/v1/chat/completions`.
    #[serde(default)]
    pub path: Option<String>,
    /// Public model ids, and what the upstream calls them.
    pub models: BTreeMap<String, String>,
    /// Public model ids, and what they cost here instead of what `models` of the file says; each with `prompt` and
    /// `completion`: a price that is left out would be none.
    #[serde(default, deserialize_with = "whole_prices")]
    pub pricing: BTreeMap<String, Pricing>,
    /// What it asks for in `Authorization` (or `x-api-key`).
    #[serde(default)]
    pub bearer_token: Option<Credential>,
    /// Whether the credential is `user:password` of HTTP's basic scheme instead of a bearer token.
    #[serde(default)]
    pub basic_auth: bool,
    /// Whether it is offered HTTP/2, all requests over one connection: as many at a time as it allows, and the others wait.
    #[serde(default)]
    pub http2: bool,
    /// How it wants to be told how much to think; `None` passes the client's words on.
    #[serde(default)]
    pub reasoning_dialect: Option<Dialect>,
    /// Whether it keeps nothing of what it gets.
    #[serde(default)]
    pub zdr: bool,
    /// Whether it stores what it gets, to learn from it.
    #[serde(default)]
    pub stores_data: bool,
    /// How its weights are quantized, such as `fp8`.
    #[serde(default)]
    pub quantization: Option<String>,
    /// Those with a lower number are asked first.
    #[serde(default)]
    pub priority: u32,
    /// Share of the requests among those of the same priority.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Parameters that it knows beside those of the model; `None` is all.
    #[serde(default)]
    pub supported_parameters: Option<Vec<String>>,
    /// Limits in time.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Applications that an `aci-service` may be, each `app-id:0x` and 40 hex digits.
    #[serde(default)]
    pub accepted_subjects: Vec<String>,
    /// Container images that an `aci-service` may consist of, each `sha256:` and 64 hex digits.
    #[serde(default)]
    pub accepted_image_digests: Vec<String>,
    /// Compose documents that an `aci-service` may run, each 64 hex digits.
    #[serde(default)]
    pub accepted_compose_hashes: Vec<String>,
    /// What the machine of an `aci-service` may have booted: all four registers of each. They are different for each
    /// image, and for each number of CPUs and size of memory.
    #[serde(default)]
    pub accepted_boot_registers: Vec<ExpectedRegisters>,
    /// Images that it may have booted, each 64 hex digits. Only of a development platform do they lead to registers.
    #[serde(default)]
    pub accepted_os_image_hashes: Vec<String>,
    /// KMSes that the machine of an `aci-service` may have its keys from: `SubjectPublicKeyInfo` of the certificate
    /// authority of each, DER in hex.
    #[serde(default)]
    pub accepted_key_provider_ids: Vec<String>,
    /// Roots of KMSes that may vouch for an `aci-service`'s keys: compressed secp256k1 keys, 66 hex digits.
    #[serde(default)]
    pub accepted_kms_root_public_keys: Vec<String>,
    /// Collateral service for its evidence; `None` is Intel's own.
    #[serde(default)]
    pub pccs_url: Option<Url>,
    /// Seconds that a verification holds, from 60 to 86400.
    #[serde(default = "verification::default_lifetime_s")]
    pub verification_lifetime_s: u32,
    /// Whether nothing is sent to it unless it is verified, whatever a request demands.
    #[serde(default)]
    pub require_verified: bool,
    /// A program that verifies it, with its arguments; empty for none. What an `aci-service` proves is verified
    /// by the gateway itself.
    #[serde(default)]
    pub verifier_command: Vec<String>,
    /// What the program is told beside the request.
    #[serde(default)]
    pub verifier_options: serde_json::Map<String, serde_json::Value>,
    /// What one verification by the program is about.
    #[serde(default)]
    pub verifier_scope: VerifierScope,
    /// PEM file with authorities that its certificate may have beside those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

/// Prices per token, exact decimals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pricing {
    /// Of a token that is sent.
    pub prompt: Decimal,
    /// Of a token that comes back.
    pub completion: Decimal,
    /// Of a token that is read from a cache; `None` is the price of a sent one.
    pub cache_read: Option<Decimal>,
    /// Of a token that is put into a cache; `None` is the price of a sent one.
    pub cache_creation: Option<Decimal>,
}

/// Prices by model, in which those of what is sent and what comes back may not be left out.
fn whole_prices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Pricing>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Whole {
        prompt: Decimal,
        completion: Decimal,
        cache_read: Option<Decimal>,
        cache_creation: Option<Decimal>,
    }
    let prices = BTreeMap::<String, Whole>::deserialize(deserializer)?;
    let pricing = |Whole { prompt, completion, cache_read, cache_creation }| Pricing {
        prompt,
        completion,
        cache_read,
        cache_creation,
    };
    Ok(prices.into_iter().map(|(model, whole)| (model, pricing(whole))).collect())
}

impl UpstreamConfig {
    /// The upstream as such: connections to it and what is known of its health outlast a change of its prices.
    #[must_use]
    pub fn without_prices(&self) -> Self {
        Self { pricing: BTreeMap::new(), ..self.clone() }
    }
}

impl Pricing {
    /// What costs no less than either, whatever is used.
    #[must_use]
    pub fn dearest(self, other: &Self) -> Self {
        let either = |price: fn(&Self) -> Option<Decimal>| match (price(&self), price(other)) {
            (None, None) => None,
            (one, two) => Some(one.unwrap_or(self.prompt).max(two.unwrap_or(other.prompt))),
        };
        Self {
            prompt: self.prompt.max(other.prompt),
            completion: self.completion.max(other.completion),
            cache_read: either(|pricing| pricing.cache_read),
            cache_creation: either(|pricing| pricing.cache_creation),
        }
    }
}

/// What is told about a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Public id, such as `vendor/model`.
    pub id: String,
    /// Name for people.
    #[serde(default)]
    pub name: Option<String>,
    /// A sentence.
    #[serde(default)]
    pub description: String,
    /// When it was added, in seconds since the Unix epoch.
    #[serde(default)]
    pub created: u64,
    /// Tokens that fit in.
    #[serde(default)]
    pub context_length: Option<u64>,
    /// Tokens that may come out.
    #[serde(default)]
    pub max_output_length: Option<u64>,
    /// What it costs.
    #[serde(default)]
    pub pricing: Pricing,
    /// What goes in.
    #[serde(default = "text")]
    pub input_modalities: Vec<String>,
    /// What comes out; `embeddings` for a model of embeddings.
    #[serde(default = "text")]
    pub output_modalities: Vec<String>,
    /// Parameters that it knows; `None` passes everything on.
    #[serde(default)]
    pub supported_parameters: Option<Vec<String>>,
    /// Anything else that is told, as it stands here.
    #[serde(default)]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Whether it is served by verified upstreams only, whatever a request demands.
    #[serde(default)]
    pub require_verified: bool,
}

fn default_bind() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8086))
}

const fn default_control_timeout_ms() -> u64 {
    10_000
}

const fn default_send_request_features() -> bool {
    true
}

const fn default_sample_ratio() -> f64 {
    1.0
}

const fn default_untold_limit() -> Decimal {
    Decimal::ONE_HUNDRED
}

const fn default_keepalive_ms() -> u64 {
    10_000
}

const fn default_busy_poll_us() -> u64 {
    200
}

const fn default_read_on_ms() -> u64 {
    10_000
}

const fn default_capacity_retry_ms() -> u64 {
    2000
}

const fn default_body_memory_mib() -> usize {
    512
}

const fn default_weight() -> u32 {
    1
}

fn text() -> Vec<String> {
    vec!["text".to_owned()]
}

/// Why a file is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON, or a member is unknown, missing or of another type.
    #[error("{at}: {what} (line {line}, column {column})")]
    Malformed {
        /// The member, such as `upstreams[0].base_url`, or that it is all of it.
        at: String,
        /// What is wrong with it.
        what: String,
        /// Line of the text, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// A rule is broken.
    #[error("{at}: {rule}")]
    Rule {
        /// The member, such as `upstreams[0].models`.
        at: String,
        /// What has to hold.
        rule: String,
    },
}

impl ConfigError {
    /// The same without a place in the text, of a text that nobody has seen.
    #[must_use]
    pub fn without_place(self) -> Self {
        match self {
            Self::Malformed { at, what: rule, .. } => Self::Rule { at, rule },
            rule @ Self::Rule { .. } => rule,
        }
    }
}

impl GatewayConfig {
    /// Reads and checks a configuration. The text of an error never quotes a value: it might be a credential.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        let config = complaint::read(text)?;
        checks::check(&config)?;
        Ok(config)
    }
}
