//! Approvals: people, not the operator, say which documents an application runs.
//!
//! An application may have [`Owners`]: keys of people and how many of them must agree. From then on the KMS
//! allows a document of the application only with enough of their signatures over an [`ApprovalStatement`],
//! whoever asks. A signature is what `ssh-keygen` makes of the statement's text:
//!
//! ```text
//! ssh-keygen -Y sign -n cloister-approval -f ~/.ssh/id_ed25519 statement.txt
//! ```
//!
//! so any key in the form of OpenSSH does, hardware keys among them (OpenSSH, `PROTOCOL.sshsig` and
//! `PROTOCOL.u2f`).
//!
//! What keeps an old approval from being used again is the statement's serial, see
//! [`ApprovalStatement::serial`].

mod owners;
mod signature;
mod statement;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use owners::{InvalidOwnerKey, InvalidOwners, MAX_OWNERS, OwnerKey, Owners, OwnersDigest};
pub use signature::{InvalidSignature, MAX_SIGNATURE_BYTES, NAMESPACE};
pub use statement::{Action, ApprovalStatement, InvalidStatement, MAX_SERIAL, MAX_STATEMENT_BYTES};

use signature::Signature;

/// Most signatures that come with one statement; more than there can be owners, for those who were owners
/// when they signed.
pub const MAX_SIGNATURES: usize = 2 * MAX_OWNERS;

/// Signatures over one statement. The rest of the statement says the request that they come with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approvals {
    /// Serial of the statement that was signed, see [`ApprovalStatement::serial`].
    pub serial: u64,
    /// What `ssh-keygen -Y sign` wrote, whole, armoured; at most [`MAX_SIGNATURES`] of at most
    /// [`MAX_SIGNATURE_BYTES`] each.
    pub signatures: Vec<String>,
}

/// Why signatures do not approve a statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// Too much work.
    #[error("{0} signatures are too many; send at most {MAX_SIGNATURES}")]
    TooMany(usize),
    /// One of them is none.
    #[error("signature {number}: {source}")]
    Signature {
        /// Counted from 1.
        number: usize,
        /// Why.
        source: InvalidSignature,
    },
    /// Good ones, but not of enough owners.
    #[error(
        "{approved} of {threshold} needed owners approved this{}; the others sign the same statement: {statement:?}",
        strangers(*.unknown)
    )]
    NotEnough {
        /// Owners who approved.
        approved: usize,
        /// Owners who must.
        threshold: u32,
        /// Signatures of keys that belong to no owner.
        unknown: usize,
        /// Text of what is to be signed.
        statement: String,
    },
}

fn strangers(unknown: usize) -> String {
    match unknown {
        0 => String::new(),
        1 => " (1 signature is not an owner's)".to_owned(),
        many => format!(" ({many} signatures are not owners')"),
    }
}

/// That enough of `owners` signed `statement`; answers with the fingerprints of those who did, sorted.
///
/// A key counts once, however many of its signatures there are. Signatures of keys that belong to no owner
/// count nothing and do no harm: their holder may have been an owner when he signed. Everything else that is
/// not a good signature over just this statement is refused, so that nobody believes that it counted.
pub fn verify(
    statement: &ApprovalStatement,
    owners: &Owners,
    signatures: &[impl AsRef<str>],
) -> Result<Vec<String>, ApprovalError> {
    if signatures.len() > MAX_SIGNATURES {
        return Err(ApprovalError::TooMany(signatures.len()));
    }
    let text = statement.to_string();
    let (mut approved, mut unknown) = (BTreeSet::new(), 0);
    for (index, armoured) in signatures.iter().enumerate() {
        let failed = |source| ApprovalError::Signature { number: index + 1, source };
        let signature = Signature::parse(armoured.as_ref()).map_err(failed)?;
        match owners.keys().iter().find(|key| signature.is_of(key)) {
            Some(key) => {
                signature.verify(key, text.as_bytes()).map_err(failed)?;
                approved.insert(key);
            }
            None => unknown += 1,
        }
    }
    if u32::try_from(approved.len()).is_ok_and(|count| count >= owners.threshold()) {
        return Ok(approved.into_iter().map(OwnerKey::fingerprint).collect());
    }
    Err(ApprovalError::NotEnough {
        approved: approved.len(),
        threshold: owners.threshold(),
        unknown,
        statement: text,
    })
}
