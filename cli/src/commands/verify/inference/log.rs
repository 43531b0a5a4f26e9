//! The public log that a receipt has to be in: its key, the proof of its place, and what the log was before.

use std::path::PathBuf;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use cloister_aci::log::{Inclusion, Proof, hashes};
use cloister_aci::verify::Logged;
use cloister_transparency_log::leaf_hash;
use cloister_transparency_log::verify::{self, Checkpoint, VerifyError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::client::{Gateway, Shown};
use super::{MAX_DOCUMENT_BYTES, parsed};
use crate::commands::checkpoint;
use crate::failure::Failure;
use crate::files::{read, read_text};

/// Longest text of a key.
const MAX_KEY_BYTES: u64 = 4096;
/// A receipt comes into the log some moments after it is kept.
const PAUSE: Duration = Duration::from_millis(500);
/// How often it is asked for again.
const PATIENCE: usize = 20;
/// How long all of that may take.
const LONGEST: Duration = Duration::from_mins(1);

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
    found: Found,
    /// The newest signed checkpoint that holds.
    checkpoint: Option<String>,
}

enum Found {
    Record(String),
    Unseen(String),
    Refused(String),
}

/// Why nothing was seen.
enum Trouble {
    /// The user's own command line or file.
    Own(Failure),
    /// Nothing is shown: no log, no proof in it, no answer.
    Absent(String),
    /// What is shown does not hold.
    Untrue(String),
}

impl Trouble {
    /// A gateway that does not answer as it should.
    fn unanswered(failure: &Failure) -> Self {
        Self::Absent(format!("the log cannot be looked at: {failure}"))
    }
}

impl Seen {
    /// What a check of a receipt takes.
    pub(super) fn logged(&self) -> Logged<'_> {
        match &self.found {
            Found::Record(text) => Logged::Record(text),
            Found::Unseen(reason) => Logged::Unseen(reason),
            Found::Refused(reason) => Logged::Refused(reason),
        }
    }

    /// Keeps the checkpoint, where that is asked for.
    pub(super) fn save(&self, args: &LogArgs) -> Result<(), Failure> {
        match (&args.save_log_checkpoint, &self.checkpoint) {
            (Some(path), Some(note)) => checkpoint::save(path, note),
            _ => Ok(()),
        }
    }
}

/// Looks at the log where somebody asks for it, and of a receipt that the gateway shows now. Who does not ask for it
/// learns that there is none: a gateway may keep none, and a receipt may be older than its log.
pub(super) async fn look(
    args: &LogArgs,
    gateway: Option<&Gateway>,
    receipt: &Value,
    is_shown_now: bool,
) -> Result<Seen, Failure> {
    let is_demanded = args.is_demanded();
    let found = if is_demanded || is_shown_now {
        seen(args, gateway, receipt).await
    } else {
        Err(Trouble::Absent("the log of receipts was not looked at".to_owned()))
    };
    let found = match found {
        Ok(seen) => return Ok(seen),
        Err(Trouble::Own(failure)) => return Err(failure),
        Err(Trouble::Absent(reason)) if !is_demanded => Found::Unseen(reason),
        Err(Trouble::Absent(reason) | Trouble::Untrue(reason)) => Found::Refused(reason),
    };
    Ok(Seen { found, checkpoint: None })
}

async fn seen(args: &LogArgs, gateway: Option<&Gateway>, receipt: &Value) -> Result<Seen, Trouble> {
    if let (Some(path), None) = (&args.save_log_checkpoint, &args.log_checkpoint)
        && path.exists()
    {
        let message = format!("{} has a checkpoint that would be lost unseen", path.display());
        return Err(Trouble::Own(Failure::usage(message).hint("give it with --log-checkpoint, too")));
    }
    let key = key(args, gateway).await?;
    let earlier = earlier(args, &key)?;
    let inclusion = match (&args.inclusion, gateway) {
        (Some(path), _) => read(path, MAX_DOCUMENT_BYTES).map_err(Trouble::Own)?,
        (None, Some(gateway)) => {
            gateway.key().map_err(Trouble::Own)?;
            let id = receipt.get("receipt_id").and_then(Value::as_str).unwrap_or_default();
            shown(gateway, id).await?
        }
        (None, None) => {
            let message = "no proof that the receipt is in the log: give --inclusion FILE, or --url";
            return Err(Trouble::Own(Failure::usage(message)));
        }
    };
    let inclusion: Inclusion = document(&inclusion)
        .ok_or_else(|| Trouble::Untrue("the proof of the log cannot be read".to_owned()))?;
    let now = proved(&inclusion, &key).map_err(|error| Trouble::Untrue(error.to_string()))?;
    let checkpoint = match (earlier, gateway) {
        (Some((earlier, note)), Some(gateway)) => {
            // A proof that somebody kept may be older than the checkpoint.
            let is_newer = now.size >= earlier.size;
            let (less, more) = if is_newer { (&earlier, &now) } else { (&now, &earlier) };
            continued(gateway, less, more).await?;
            if is_newer { inclusion.checkpoint } else { note }
        }
        _ => inclusion.checkpoint,
    };
    Ok(Seen { found: Found::Record(inclusion.record), checkpoint: Some(checkpoint) })
}

/// The log's key: the one that the user knows, or the one that the gateway says.
async fn key(args: &LogArgs, gateway: Option<&Gateway>) -> Result<String, Trouble> {
    let (key, unusable) = match (&args.log_key, gateway) {
        (Some(path), _) => {
            let text = read_text(path, MAX_KEY_BYTES).map_err(Trouble::Own)?;
            let unusable = Failure::usage(format!("{} has no key of a log", path.display()));
            (text.trim().to_owned(), Trouble::Own(unusable))
        }
        (None, Some(gateway)) => {
            let key = gateway.log_key().await.map_err(|failure| Trouble::unanswered(&failure))?;
            let key =
                key.ok_or_else(|| Trouble::Absent("the gateway keeps no log of receipts".to_owned()))?;
            (key, Trouble::Untrue("the gateway's key of the log cannot be used".to_owned()))
        }
        (None, None) => {
            let message = "whose log? Give its key as you know it: --log-key FILE, or --url";
            return Err(Trouble::Own(Failure::usage(message)));
        }
    };
    if verify::is_verifier_key(&key) { Ok(key) } else { Err(unusable) }
}

/// The checkpoint of an earlier run, with its text.
fn earlier(args: &LogArgs, key: &str) -> Result<Option<(Checkpoint, String)>, Trouble> {
    let Some(path) = &args.log_checkpoint else { return Ok(None) };
    let note = checkpoint::read(path).map_err(Trouble::Own)?;
    match checkpoint::verified(path, &note, key) {
        Ok(earlier) => Ok(Some((earlier, note))),
        Err(failure) if args.log_key.is_some() => Err(Trouble::Own(failure)),
        Err(_) => {
            let reason =
                format!("the gateway's log is not the one of {}: its key is another", path.display());
            Err(Trouble::Untrue(reason))
        }
    }
}

/// What the gateway shows of a receipt, once it is there.
async fn shown(gateway: &Gateway, id: &str) -> Result<Vec<u8>, Trouble> {
    let absent = |reason: &str| Trouble::Absent(reason.to_owned());
    let ask = async || match gateway.inclusion(id).await {
        Ok(Shown::Bytes(bytes)) => Ok(Ok(bytes)),
        Ok(Shown::Nothing) => Ok(Err(absent("the gateway does not show that the receipt is in its log"))),
        Ok(Shown::Later) => Err(()),
        Err(failure) => Ok(Err(Trouble::unanswered(&failure))),
    };
    let again = ConstantBuilder::default().with_delay(PAUSE).with_max_times(PATIENCE);
    let in_time = tokio::time::timeout(LONGEST, ask.retry(again)).await;
    in_time
        .unwrap_or(Err(()))
        .unwrap_or_else(|()| Err(absent("the receipt is not in the log yet: try again")))
}

/// The checkpoint that a record is proved to be under.
fn proved(inclusion: &Inclusion, key: &str) -> Result<Checkpoint, VerifyError> {
    let now = Checkpoint::verified(&inclusion.checkpoint, key)?;
    let hashes = hashes(&inclusion.hashes).ok_or(VerifyError::Inclusion)?;
    let leaf = leaf_hash(inclusion.record.as_bytes());
    verify::inclusion(&hashes, now.size, now.root, inclusion.index, leaf)?;
    Ok(now)
}

/// Whether the larger log begins with the smaller one.
async fn continued(gateway: &Gateway, less: &Checkpoint, more: &Checkpoint) -> Result<(), Trouble> {
    let unshown = |why: &str| {
        let (less, more) = (less.size, more.size);
        Trouble::Untrue(format!(
            "the gateway does not show that its log of {more} records begins with the {less}{why}"
        ))
    };
    let answer = gateway.consistency(less.size, more.size).await;
    let bytes = answer.map_err(|failure| unshown(&format!(": {failure}")))?.ok_or_else(|| unshown(""))?;
    let proof =
        document::<Proof>(&bytes).and_then(|proof| hashes(&proof.hashes)).ok_or_else(|| unshown(""))?;
    verify::consistency(&proof, less.size, less.root, more.size, more.root)
        .map_err(|error| Trouble::Untrue(error.to_string()))
}

/// A document that says everything once.
fn document<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_value(parsed(bytes, "the log's answer").ok()?).ok()
}
