//! What the person expects of the CVM.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use cloister_evidence::report_data::{MAX_BYTES, padded};
use cloister_verifier::TcbStatus;
use cloister_verifier::appraisal::{Expectations, ExpectedCompose, ExpectedRegisters, Nonce};
use serde_json::Value;

use super::image;
use crate::failure::Failure;
use crate::files::{read, read_text};

/// Largest compose or app-compose document, in bytes (platform limit: 50 MB).
const MAX_COMPOSE_BYTES: u64 = 50_000_000;
const MAX_REGISTERS_BYTES: u64 = 64 * 1024;
/// Bytes of a nonce that is made here.
const NONCE_BYTES: usize = 32;

/// Options for expectations.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Expectations")]
pub(super) struct ExpectationArgs {
    /// Application [default: the one that TARGET names]
    #[arg(long, value_name = "HEX")]
    app_id: Option<AppId>,
    /// CVM of the application
    #[arg(long, value_name = "HEX")]
    instance_id: Option<InstanceId>,
    /// Root of the KMS that its keys must come from, as in `key_provider_id` of the document
    #[arg(long, value_name = "HEX")]
    key_provider_id: Option<String>,
    /// Compose file, or app-compose document, that must run
    #[arg(long, value_name = "FILE", conflicts_with = "compose_hash")]
    compose: Option<PathBuf>,
    /// SHA-256 of the app-compose document that must run
    #[arg(long, value_name = "HEX")]
    compose_hash: Option<ComposeHash>,
    /// Guest image that must have been booted
    #[arg(long, value_name = "HEX", conflicts_with = "image")]
    os_image_hash: Option<OsImageHash>,
    /// Directory of the guest image that must have been booted; its files are checked
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// JSON file with expected registers: mrtd, rtmr0, rtmr1, rtmr2, 96 hex digits each; needed for hardware
    #[arg(long, value_name = "FILE")]
    registers: Option<PathBuf>,
    /// What the evidence must have been made over: up to 32 bytes for a TARGET (16 or 32 for a gateway), up to 64 for what is
    /// at hand
    /// [default: fresh random bytes for a TARGET]
    #[arg(long, value_name = "HEX")]
    nonce: Option<String>,
    /// Acceptable TCB statuses of the platform, in Intel's spelling
    #[arg(long, value_name = "STATUS", value_delimiter = ',', default_value = "UpToDate")]
    accept_tcb: Vec<TcbStatus>,
    /// Security advisories that must not apply to the platform
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    deny_advisory: Vec<String>,
}

impl ExpectationArgs {
    /// Reads the files that are named.
    pub(super) fn read(&self) -> Result<Expectations, Failure> {
        let compose = match (&self.compose, self.compose_hash) {
            (Some(path), _) => Some(expected_compose(path)?),
            (None, hash) => hash.map(ExpectedCompose::Hash),
        };
        let os_image_hash = match &self.image {
            Some(directory) => Some(image::hash(directory)?),
            None => self.os_image_hash,
        };
        let registers = match &self.registers {
            Some(path) => registers(path)?,
            None => ExpectedRegisters::default(),
        };
        let key_provider_id = self.key_provider_id.as_deref().map(|id| {
            hex::decode(id.strip_prefix("0x").unwrap_or(id))
                .map_err(|_| Failure::usage("--key-provider-id is not hexadecimal"))
        });
        Ok(Expectations {
            key_provider_id: key_provider_id.transpose()?,
            app_id: self.app_id,
            compose,
            os_image_hash,
            instance_id: self.instance_id,
            registers,
            accepted_tcb: self.accept_tcb.iter().copied().collect(),
            denied_advisories: self.deny_advisory.iter().cloned().collect::<BTreeSet<_>>(),
            ..Expectations::default()
        })
    }

    /// The nonce to ask for evidence with: the one that was given, or random bytes.
    pub(super) fn nonce_or_fresh(&self) -> Result<Vec<u8>, Failure> {
        if let Some(nonce) = self.nonce()? {
            return Ok(nonce);
        }
        let mut fresh = vec![0; NONCE_BYTES];
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut fresh)
            .map_err(|_| Failure::new(crate::failure::Exit::Failed, "the system gives no random bytes"))?;
        Ok(fresh)
    }

    /// Expects the nonce that was given, if any, of evidence that was not asked for here.
    pub(super) fn given_nonce(&self, expectations: &mut Expectations) -> Result<(), Failure> {
        if let Some(nonce) = self.nonce()?.as_deref().and_then(padded) {
            expectations.nonce = Some(Nonce::Own(nonce));
        }
        Ok(())
    }

    fn nonce(&self) -> Result<Option<Vec<u8>>, Failure> {
        let Some(text) = &self.nonce else { return Ok(None) };
        let bytes = hex::decode(text.strip_prefix("0x").unwrap_or(text)).ok();
        let bytes = bytes.filter(|bytes| (1..=MAX_BYTES).contains(&bytes.len()));
        bytes.map(Some).ok_or_else(|| Failure::usage("--nonce must be 1 to 64 bytes in hex"))
    }
}

/// An app-compose document is compared as a whole, a compose file with the one in it.
fn expected_compose(path: &Path) -> Result<ExpectedCompose, Failure> {
    let text = read_text(path, MAX_COMPOSE_BYTES)?;
    let is_document = serde_json::from_str::<Value>(&text)
        .is_ok_and(|value| value.get("manifest_version").is_some() || value.get("runner").is_some());
    Ok(if is_document {
        ExpectedCompose::Document(text.into_bytes())
    } else {
        ExpectedCompose::ComposeFile(text)
    })
}

fn registers(path: &Path) -> Result<ExpectedRegisters, Failure> {
    serde_json::from_slice(&read(path, MAX_REGISTERS_BYTES)?).map_err(|error| {
        Failure::usage(format!("{} does not hold registers", path.display())).caused_by(error).hint(
            r#"write it like {"mrtd": "…", "rtmr0": "…", "rtmr1": "…", "rtmr2": "…"}, 96 hex digits each"#,
        )
    })
}
