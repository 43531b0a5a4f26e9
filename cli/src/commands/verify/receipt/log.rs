//! The public log that a receipt has to be in: its key, the proof of its place, and what the log was before.

use std::path::PathBuf;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use cloister_aci::log::{Inclusion, Proof, hashes};
use cloister_transparency_log::leaf_hash;
use cloister_transparency_log::verify::{self, Checkpoint, VerifyError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::gateway::{Gateway, Shown};
use super::{MAX_DOCUMENT_BYTES, parsed, read};
use crate::commands::checkpoint;
use crate::commands::verify::read_text;
use crate::failure::Failure;

/// Longest text of a key.
const MAX_KEY_BYTES: u64 = 4096;
/// A receipt comes into the log some moments after it is kept.
const PAUSE: Duration = Duration::from_millis(500);
/// How often it is asked for again.
const PATIENCE: usize = 20;

/// What belongs to the log.
#[derive(Debug, clap::Args)]
pub(super) struct LogArgs {
    /// Proof that the receipt is in the gateway's log, with --log-key or --url [default: asked for]
    #[arg(long, value_name = "FILE")]
    inclusion: Option<PathBuf>,
    /// Key of the log, as you know it from before or elsewhere: the receipt has to be in that one [default: asked for]
    #[arg(long, value_name = "FILE")]
    log_key: Option<PathBuf>,
    /// Checkpoint of the log that an earlier run saved; the log must still begin with it
    #[arg(long, value_name = "FILE", requires = "url")]
    log_checkpoint: Option<PathBuf>,
    /// Keep the log's checkpoint, if everything holds
    #[arg(long, value_name = "FILE")]
    save_log_checkpoint: Option<PathBuf>,
}

impl LogArgs {
    /// Whether somebody wants to see the receipt in the log.
    const fn is_demanded(&self) -> bool {
        self.inclusion.is_some()
            || self.log_key.is_some()
            || self.log_checkpoint.is_some()
            || self.save_log_checkpoint.is_some()
    }
}

/// What was seen of the log.
pub(super) struct Seen {
    /// Text of the record that is proved to be in the log, or why none is; nothing if there was nothing to look at.
    record: Option<Result<String, String>>,
    /// The signed checkpoint that the proof leads to.
    checkpoint: Option<String>,
}

const UNSEEN: Seen = Seen { record: None, checkpoint: None };

impl Seen {
    fn refused(reason: impl Into<String>) -> Self {
        Self { record: Some(Err(reason.into())), checkpoint: None }
    }

    /// What a check of a receipt takes.
    pub(super) fn found(&self) -> Option<Result<&str, &str>> {
        self.record.as_ref().map(|record| record.as_deref().map_err(String::as_str))
    }

    /// Keeps the checkpoint, where that is asked for.
    pub(super) fn save(&self, args: &LogArgs) -> Result<(), Failure> {
        match (&args.save_log_checkpoint, &self.checkpoint) {
            (Some(path), Some(note)) => checkpoint::save(path, note),
            _ => Ok(()),
        }
    }
}

/// Looks at the log. A gateway may keep none, and forgets a receipt of old; where a log is asked for, and of a receipt that
/// the gateway shows now, that is a failure.
pub(super) async fn look(
    args: &LogArgs,
    gateway: Option<&Gateway>,
    receipt: &Value,
    is_shown_now: bool,
) -> Result<Seen, Failure> {
    let is_demanded = args.is_demanded();
    let key = match (&args.log_key, gateway) {
        (Some(path), _) => read_text(path, MAX_KEY_BYTES)?.trim().to_owned(),
        (None, Some(gateway)) => match gateway.log_key().await? {
            Some(key) => key,
            None if is_demanded => return Ok(Seen::refused("the gateway keeps no log of receipts")),
            None => return Ok(UNSEEN),
        },
        (None, None) if is_demanded => {
            return Err(Failure::usage("whose log? Give its key as you know it: --log-key FILE, or --url"));
        }
        (None, None) => return Ok(UNSEEN),
    };
    let earlier = args.log_checkpoint.as_deref().map(|path| checkpoint::saved(path, &key)).transpose()?;
    let id = receipt.get("receipt_id").and_then(Value::as_str).unwrap_or_default();
    let inclusion = match (&args.inclusion, gateway) {
        (Some(path), _) => Some(read(path, MAX_DOCUMENT_BYTES)?),
        (None, Some(gateway)) if gateway.has_key() || is_demanded => shown(gateway, id).await?,
        (None, Some(_)) => None,
        (None, None) => {
            return Err(Failure::usage(
                "no proof that the receipt is in the log: give --inclusion FILE, or --url",
            ));
        }
    };
    let Some(inclusion) = inclusion else {
        let is_failure = is_demanded || is_shown_now;
        let reason = "the gateway has a log, and does not show that the receipt is in it";
        return Ok(if is_failure { Seen::refused(reason) } else { UNSEEN });
    };
    let Some(inclusion) = document::<Inclusion>(&inclusion) else {
        return Ok(Seen::refused("the proof of the log cannot be read"));
    };
    let now = match proved(&inclusion, &key) {
        Ok(now) => now,
        Err(error @ VerifyError::VerifierKey) => {
            return Err(Failure::usage("the log's key cannot be used").caused_by(error));
        }
        Err(error) => return Ok(Seen::refused(error.to_string())),
    };
    if let (Some(earlier), Some(gateway)) = (&earlier, gateway)
        && let Err(reason) = continued(gateway, earlier, &now).await?
    {
        return Ok(Seen::refused(reason));
    }
    Ok(Seen { record: Some(Ok(inclusion.record)), checkpoint: Some(inclusion.checkpoint) })
}

/// What the gateway shows of a receipt, once it is there.
async fn shown(gateway: &Gateway, id: &str) -> Result<Option<Vec<u8>>, Failure> {
    let ask = async || match gateway.inclusion(id).await {
        Ok(Shown::Bytes(bytes)) => Ok(Some(bytes)),
        Ok(Shown::Nothing) => Ok(None),
        Ok(Shown::Later) => Err(None),
        Err(failure) => Err(Some(failure)),
    };
    let again = ConstantBuilder::default().with_delay(PAUSE).with_max_times(PATIENCE);
    // A failure of another kind is none to wait for.
    ask.retry(again).when(Option::is_none).await.or_else(|failure| failure.map_or(Ok(None), Err))
}

/// The checkpoint that a record is proved to be under.
fn proved(inclusion: &Inclusion, key: &str) -> Result<Checkpoint, VerifyError> {
    let now = Checkpoint::verified(&inclusion.checkpoint, key)?;
    let hashes = hashes(&inclusion.hashes).ok_or(VerifyError::Inclusion)?;
    let leaf = leaf_hash(inclusion.record.as_bytes());
    verify::inclusion(&hashes, now.size, now.root, inclusion.index, leaf)?;
    Ok(now)
}

/// Whether the log begins with what it was.
async fn continued(
    gateway: &Gateway,
    earlier: &Checkpoint,
    now: &Checkpoint,
) -> Result<Result<(), String>, Failure> {
    if earlier.size > now.size {
        let (was, is) = (earlier.size, now.size);
        return Ok(Err(format!("the log had {was} records and has {is}: records were taken out")));
    }
    let shown = gateway.consistency(earlier.size, now.size).await?;
    let proof = shown.and_then(|bytes| hashes(&document::<Proof>(&bytes)?.hashes));
    let Some(proof) = proof else {
        return Ok(Err("the gateway does not show that the log begins with what it was".to_owned()));
    };
    let holds = verify::consistency(&proof, earlier.size, earlier.root, now.size, now.root);
    Ok(holds.map_err(|error| error.to_string()))
}

/// A document that says everything once.
fn document<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_value(parsed(bytes, "the log's answer").ok()?).ok()
}
