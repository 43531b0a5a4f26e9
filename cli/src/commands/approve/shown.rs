//! What an owner is about to sign, in words.

use std::fmt::Write as _;

use cloister_app_compose::{AppCompose, ComposeHash};
use cloister_kms_api::approvals::{Action, ApprovalStatement, OwnerKey, Owners, OwnersDigest};
use cloister_management_api::{Approval, Compared, ConfigurationDiff, StatedOwners};

use crate::failure::{Exit, Failure};

/// What the statement comes to. What it names by a hash was computed from what is shown.
pub(super) fn words(statement: &ApprovalStatement, item: Option<&Approval>) -> Result<String, Failure> {
    let app = statement.app_id;
    let mut words = match statement.action {
        Action::AllowComposeHash(hash) => {
            let item = item.ok_or_else(unknown)?;
            format!("Application {app} may run this document.\n{}", document(hash, item)?)
        }
        Action::RevokeComposeHash(hash) => format!(
            "Application {app} may not run document {hash} any more: no CVM that starts gets keys for it, and no \
             approval until now allows it again.\n"
        ),
        Action::SetOwners(digest) => {
            let proposed = item.and_then(|item| item.proposed_owners.as_ref()).ok_or_else(unknown)?;
            format!("Application {app} gets other owners.\n{}", owners(digest, proposed)?)
        }
    };
    if let Some(item) = item {
        for signer in &item.signed_by {
            let _ = writeln!(
                words,
                "Signed by {} {}",
                signer.fingerprint.escape_debug(),
                signer.members.join(", ").escape_debug()
            );
        }
    }
    Ok(words)
}

fn unknown() -> Failure {
    Failure::new(Exit::NotFound, "the server has nothing to show of this, so that nobody should sign it")
        .hint("see what waits: cloister approvals list APP")
}

fn lie(what: &str) -> Failure {
    Failure::new(Exit::Unverified, format!("the server shows {what} than the statement is about"))
        .hint("nothing was signed; do not trust this server")
}

/// All of the document, and how it differs from the one that runs. What runs is the server's word: the difference is a
/// help, and what is signed is the document.
fn document(hash: ComposeHash, item: &Approval) -> Result<String, Failure> {
    let text = item.app_compose.as_deref().ok_or_else(unknown)?;
    if ComposeHash::of(text.as_bytes()) != hash {
        return Err(lie("another document"));
    }
    let wanted = AppCompose::parse(text.as_bytes())
        .map_err(|error| Failure::new(Exit::Failed, "the document cannot be read").caused_by(error))?;
    let mut words = members(&wanted);
    let current =
        item.current_app_compose.as_deref().and_then(|text| AppCompose::parse(text.as_bytes()).ok());
    if let Some(current) = current.filter(|current| current.compose_hash() != hash) {
        let side = |of: &'_ AppCompose| (of.document().clone(), of.compose_hash());
        let ((before, from), (after, to)) = (side(&current), side(&wanted));
        let compared =
            |document, compose_hash| Compared { compose_hash, document, encrypted_env: None, other: &[] };
        let diff = ConfigurationDiff::between(&compared(&before, from), &compared(&after, to));
        let _ = write!(words, "\nCompared with what runs now, as the server says:\n{}", diff.to_words());
    }
    let _ = writeln!(words, "This document has the hash {hash}: it was computed here.");
    Ok(words)
}

/// Every member, texts of several lines as they are.
fn members(document: &AppCompose) -> String {
    let mut words = String::new();
    for (name, value) in document.document() {
        // Nobody's name begins a line of its own.
        let name = name.escape_debug();
        let _ = match value.as_str() {
            Some(text) if text.contains('\n') => {
                writeln!(words, "  {name}:\n    {}", text.trim_end().replace('\n', "\n    "))
            }
            _ => writeln!(words, "  {name}: {value}"),
        };
    }
    words
}

fn owners(digest: OwnersDigest, proposed: &StatedOwners) -> Result<String, Failure> {
    let keys = proposed.keys.iter().map(|key| key.parse()).collect::<Result<Vec<OwnerKey>, _>>();
    let owners = keys.ok().and_then(|keys| Owners::new(proposed.threshold, keys).ok());
    let owners = owners.filter(|owners| owners.digest() == digest).ok_or_else(|| lie("other owners"))?;
    let mut words = format!("{} of these have to sign from then on:\n", owners.threshold());
    for key in owners.keys() {
        let _ = writeln!(words, "  {}  {key}", key.fingerprint());
    }
    Ok(words)
}
