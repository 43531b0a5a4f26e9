//! `cloister kms log verify`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cloister_kms_api::log::Record;
use cloister_transparency_log::verify::{Checkpoint, VerifyError};
use cloister_transparency_log::{Hash, Tree};
use serde_json::{Value, json};

use super::CHECKPOINT;
use super::pages::Pages;
use crate::commands::kms::checks::Checks;
use crate::commands::kms::connection::{ConnectionArgs, Directory};
use crate::commands::{Outcome, checkpoint};
use crate::failure::Failure;
use crate::session::Session;

/// Arguments of `kms log verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every record is fetched and hashed, and the result compared with the checkpoint that the KMS signed. Keep that \
checkpoint with --save, on another machine: given again with --checkpoint, it shows that nothing was taken out \
of the log or changed since. The file holds nothing secret.

Example: cloister kms log verify --checkpoint kms.checkpoint --save kms.checkpoint")]
pub(crate) struct Args {
    /// Checkpoint that an earlier run saved; the log must still begin with it
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Keep the new checkpoint, if everything holds
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// File with the key of the log's checkpoints, as known from elsewhere
    #[arg(long, value_name = "FILE")]
    verifier_key: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// What all the records came to.
struct Read {
    root: Hash,
    /// Root of the first records, as many as the earlier checkpoint counts.
    earlier: Option<Hash>,
    kinds: BTreeMap<String, u64>,
}

/// Checks the whole log.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let directory = args.connection.open(session)?;
    let key = args.connection.verifier_key(args.verifier_key.as_deref(), session)?;
    let saved = |path| checkpoint::verified(path, &checkpoint::read(path)?, &key);
    let earlier = args.checkpoint.as_deref().map(saved).transpose()?;
    let note = directory.text(CHECKPOINT).await?;
    let mut checks = Checks::default();
    let now = match Checkpoint::verified(&note, &key) {
        Ok(now) => now,
        Err(error @ VerifyError::VerifierKey) => {
            return Err(Failure::usage("the verifier key cannot be used").caused_by(error));
        }
        Err(error) => {
            checks.fails("signature", format!("The checkpoint is refused: {error}."));
            return checks.conclude(Value::Null, "the log", session);
        }
    };
    let signed = format!("The checkpoint of {} records is signed by the key of {}.", now.size, now.origin);
    checks.holds("signature", signed);
    let earlier_size = earlier.as_ref().map(|earlier| earlier.size).filter(|size| *size <= now.size);
    let read = read(&directory, now.size, earlier_size, session).await?;
    checks.check(
        "records",
        read.root == now.root,
        format!("All {} records were read, and hash to the root that was signed.", now.size),
        "The records do not hash to the root that was signed: some were changed, left out or put in.",
    );
    match &earlier {
        None => {
            checks.open("history", "No earlier checkpoint was given: nothing says what the log was before.");
        }
        Some(earlier) if earlier.size > now.size => {
            let lost =
                format!("The log had {} records and has {}: records were taken out.", earlier.size, now.size);
            checks.fails("history", lost);
        }
        Some(earlier) => checks.check(
            "history",
            read.earlier == Some(earlier.root),
            format!(
                "It begins with the {} records that it had; {} were added.",
                earlier.size,
                now.size - earlier.size
            ),
            format!("It does not begin with the {} records that it had: the past was changed.", earlier.size),
        ),
    }
    if let Some(path) = args.save.as_deref().filter(|_| checks.hold()) {
        checkpoint::save(path, &note)?;
    }
    let more = json!({ "origin": now.origin, "size": now.size, "root": hex::encode(now.root), "kinds": read.kinds,
        "earlier_size": earlier.map(|earlier| earlier.size) });
    checks.conclude(more, "the log", session)
}

async fn read(
    directory: &Directory,
    size: u64,
    earlier_size: Option<u64>,
    session: &Session,
) -> Result<Read, Failure> {
    let mut progress = session.output.progress();
    progress.phase("reading the log");
    let mut tree = Tree::new();
    let mut kinds = BTreeMap::new();
    let mut earlier = (earlier_size == Some(0)).then(|| tree.root());
    let mut pages = Pages::from(directory, 0);
    while pages.next_index() < size {
        for text in pages.page(size).await? {
            tree.push(text.as_bytes());
            if Some(tree.size()) == earlier_size {
                earlier = Some(tree.root());
            }
            *kinds.entry(kind(&text)).or_default() += 1;
        }
    }
    Ok(Read { root: tree.root(), earlier, kinds })
}

/// What kind of record it is; `unknown` for those of later versions.
fn kind(text: &str) -> String {
    let known = serde_json::from_str::<Record>(text).ok();
    let kind = known
        .and_then(|record| serde_json::to_value(record.event).ok()?.get("kind")?.as_str().map(str::to_owned));
    kind.unwrap_or_else(|| "unknown".to_owned())
}
