//! `cloister audit verify`: the chain from its first record on, through a head that was kept.

use std::io::Write;
use std::path::{Path, PathBuf};

use cloister_management_api::{AuditChain, AuditHead};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::json;

use super::{LIFETIME, Whose};
use crate::api::read;
use crate::commands::Outcome;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::session::Session;

/// Longest line of an export, and largest file of a head, in bytes.
const MAX_LINE: usize = 64 * 1024;
const MAX_HEAD: u64 = 64 * 1024;

/// Arguments of `audit verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Keep FILE where the operator of the cloud cannot change it")]
pub(crate) struct Args {
    #[command(flatten)]
    whose: Whose,
    /// Head that was kept: the log has to pass through it. It is replaced by the newer one when it does; made when absent
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
}

/// Runs the subcommand.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let kept = args.head.as_deref().map(kept).transpose()?.flatten();
    let head: AuditHead = read(&client.get(&args.whose.path(Some("head")), &[]).await?)?;
    check_signature(&head)?;
    if let Some(kept) = &kept {
        check_signature(kept)?;
        if (kept.workspace, &kept.key) != (head.workspace, &head.key) {
            return Err(broken(
                "the kept head is of another log, or the installation signs with another key",
            )
            .hint("was the file kept from another server or workspace?"));
        }
    }
    let mut lines = Lines { chain: chain(&head, kept.as_ref()), rest: Vec::new(), failure: None };
    client.copy(&args.whose.path(Some("export")), &[], LIFETIME, |piece| lines.take(piece)).await?;
    let end = lines.finish()?;
    if let Some(path) = &args.head {
        keep(path, &head)?;
    }
    if output.json {
        output.document(&json!({ "records": end, "head": head, "passes_through_kept_head": kept.is_some() }));
        return Ok(());
    }
    output.say(&match (&kept, &args.head) {
        (Some(kept), _) => {
            format!("The log is whole: {end} records, through the kept head at record {}.", kept.sequence)
        }
        (None, Some(_)) => format!("The log is whole: {end} records. Its head is kept from now on."),
        (None, None) => format!(
            "The log is whole: {end} records. Without a kept head (--head FILE) it may have been made anew as a whole."
        ),
    });
    Ok(())
}

fn chain(head: &AuditHead, kept: Option<&AuditHead>) -> AuditChain {
    let mut chain = AuditChain::to_head(head);
    if let Some(kept) = kept {
        chain.keep(kept.place());
    }
    chain
}

/// Lines out of pieces that end anywhere.
struct Lines {
    chain: AuditChain,
    rest: Vec<u8>,
    failure: Option<Failure>,
}

impl Lines {
    fn take(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.failure.is_some() {
                return;
            }
            self.rest.extend_from_slice(part);
            if self.rest.len() > MAX_LINE {
                self.failure = Some(broken("a line of the log is longer than any record"));
            } else if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.rest);
                self.failure = self.check(&line).err();
            }
        }
    }

    fn check(&mut self, line: &[u8]) -> Outcome {
        let text =
            std::str::from_utf8(line).map_err(|error| broken("the log is no text").caused_by(error))?;
        match self.chain.line(text.trim_end()) {
            Ok(_) => Ok(()),
            Err(fault) => Err(broken("the log is not whole").caused_by(fault)),
        }
    }

    fn finish(self) -> Result<i64, Failure> {
        match self.failure {
            Some(failure) => Err(failure),
            None if !self.rest.is_empty() => Err(broken("the log broke off within a record")),
            None => {
                let end = self.chain.finish();
                Ok(end.map_err(|fault| broken("the log is not whole").caused_by(fault))?.sequence)
            }
        }
    }
}

fn broken(text: &str) -> Failure {
    Failure::new(Exit::Failed, text)
}

fn check_signature(head: &AuditHead) -> Outcome {
    let decoded = hex::decode(&head.key).ok().zip(hex::decode(&head.signature).ok());
    let holds = decoded.is_some_and(|(key, signature)| {
        UnparsedPublicKey::new(&ED25519, key).verify(&head.message(), &signature).is_ok()
    });
    if holds { Ok(()) } else { Err(broken("the signature of a head does not hold")) }
}

fn kept(path: &Path) -> Result<Option<AuditHead>, Failure> {
    let Some(text) = files::read_own(path, MAX_HEAD)? else { return Ok(None) };
    let read = serde_json::from_str(&text);
    read.map(Some).map_err(|error| Failure::local(format!("{} is no head of a log", path.display()), error))
}

/// Replaces the kept head as a whole.
fn keep(path: &Path, head: &AuditHead) -> Outcome {
    let failed = |error| Failure::local(format!("cannot write {}", path.display()), error);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    let text = serde_json::to_string(head).map_err(|error| Failure::local("cannot write a head", error))?;
    writeln!(file, "{text}").map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
