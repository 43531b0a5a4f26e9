//! Evidence from files.

use std::path::{Path, PathBuf};

use cloister_evidence::{AttestationDocument, MAX_EVENT_LOG_BYTES};
use cloister_verifier::appraisal::{Connection, Evidence};
use cloister_verifier::{Clock, Collateral};

use super::Case;
use crate::failure::Failure;
use crate::files::{read, read_text};

/// Largest attestation document, in bytes: it holds an app-compose document.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
const MAX_QUOTE_FILE_BYTES: u64 = 256 * 1024;
const MAX_VM_CONFIG_BYTES: u64 = 256 * 1024;
const MAX_COLLATERAL_BYTES: u64 = 4 << 20;

/// Options for evidence in files.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Evidence from files, instead of TARGET")]
pub(super) struct FileArgs {
    /// What `/attestation` or `GetQuote` answered, JSON
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// TDX quote, binary or hex
    #[arg(long, value_name = "FILE")]
    quote: Option<PathBuf>,
    /// Event log of --quote, JSON
    #[arg(long, value_name = "FILE", requires = "quote")]
    event_log: Option<PathBuf>,
    /// App-compose document that the evidence was shown with
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "bundle"])]
    app_compose: Option<PathBuf>,
    /// Description of the machine, JSON
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "bundle"])]
    vm_config: Option<PathBuf>,
    /// What the vendor says about the platform, JSON; no network is used then
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "bundle"])]
    collateral: Option<PathBuf>,
}

impl FileArgs {
    /// Whether collateral comes along, so that no network is needed.
    pub(super) const fn has_collateral(&self) -> bool {
        self.collateral.is_some()
    }
}

/// Reads the files.
pub(super) fn open(args: &FileArgs, clock: &Clock) -> Result<Case, Failure> {
    let mut document = match (&args.document, &args.quote) {
        (Some(path), _) => {
            let bytes = read(path, MAX_DOCUMENT_BYTES)?;
            serde_json::from_slice(&bytes).map_err(|error| {
                Failure::usage(format!("{} is not an attestation document", path.display())).caused_by(error)
            })?
        }
        (None, Some(path)) => {
            AttestationDocument { quote: Some(quote(path)?), ..AttestationDocument::default() }
        }
        (None, None) => AttestationDocument::default(),
    };
    if let Some(path) = &args.event_log {
        document.event_log = read_text(path, MAX_EVENT_LOG_BYTES as u64)?;
    }
    if let Some(path) = &args.vm_config {
        document.vm_config = read_text(path, MAX_VM_CONFIG_BYTES)?;
    }
    if let Some(path) = &args.app_compose {
        document.app_compose = Some(read_text(path, MAX_DOCUMENT_BYTES)?);
    }
    let collateral = args.collateral.as_deref().map(collateral).transpose()?;
    Ok(Case {
        evidence: Evidence { document, connection: Connection::None },
        nonce: None,
        certificate_chain: None,
        collateral,
        captured_at: clock.now(),
    })
}

fn quote(path: &Path) -> Result<String, Failure> {
    let bytes = read(path, MAX_QUOTE_FILE_BYTES)?;
    let text = std::str::from_utf8(&bytes).ok().map(str::trim);
    let digits = text.map(|text| text.strip_prefix("0x").unwrap_or(text));
    let is_hex = digits.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    Ok(digits.filter(|_| is_hex).map_or_else(|| hex::encode(&bytes), str::to_owned))
}

fn collateral(path: &Path) -> Result<Collateral, Failure> {
    serde_json::from_slice(&read(path, MAX_COLLATERAL_BYTES)?)
        .map_err(|error| Failure::usage(format!("{} is not collateral", path.display())).caused_by(error))
}
