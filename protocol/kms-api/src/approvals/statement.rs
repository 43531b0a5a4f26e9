//! What owners sign: a text that says it to them and, in the same bytes, to the KMS.

use std::fmt;
use std::str::{FromStr, Lines};

use cloister_app_compose::{AppId, ComposeHash};

use super::OwnersDigest;

/// Largest serial: the largest whole number that every reader of JSON keeps.
pub const MAX_SERIAL: u64 = (1 << 53) - 1;
/// Longest statement, in bytes.
pub const MAX_STATEMENT_BYTES: usize = 512;

const TITLE: &str = "cloister approval v1";
const ALLOW: &str = "allow-compose-hash";
const REVOKE: &str = "revoke-compose-hash";
const SET_OWNERS: &str = "set-owners";

/// What is approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The application may run this document.
    AllowComposeHash(ComposeHash),
    /// It may not any more, and no approval up to this one's serial makes it so again.
    RevokeComposeHash(ComposeHash),
    /// It has these owners from now on.
    SetOwners(OwnersDigest),
}

impl Action {
    const fn name(&self) -> &'static str {
        match self {
            Self::AllowComposeHash(_) => ALLOW,
            Self::RevokeComposeHash(_) => REVOKE,
            Self::SetOwners(_) => SET_OWNERS,
        }
    }
}

/// A change of one application that its owners approve. As text:
///
/// ```text
/// cloister approval v1
/// application: <40 hex digits>
/// action: allow-compose-hash | revoke-compose-hash | set-owners
/// compose-hash: <64 hex digits>          (owners-sha256: with set-owners)
/// serial: <decimal>
/// ```
///
/// Each line ends with a line feed, the last one too. There is exactly one text for each statement, and no
/// other is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ApprovalStatement {
    /// Application.
    pub app_id: AppId,
    /// What becomes of it.
    pub action: Action,
    /// Tells later statements from earlier ones, 1 to [`MAX_SERIAL`]; take Unix time in milliseconds. A
    /// document is not allowed by a statement whose serial is not greater than that with which owners last
    /// revoked it, and owners are not changed by one whose serial is not greater than that of the owners in
    /// force.
    pub serial: u64,
}

/// Why a text is no statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is not the text of an approval: {0}")]
pub struct InvalidStatement(&'static str);

impl fmt::Display for ApprovalStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TITLE}\napplication: {}\naction: {}", self.app_id, self.action.name())?;
        match &self.action {
            Action::AllowComposeHash(hash) | Action::RevokeComposeHash(hash) => {
                writeln!(f, "compose-hash: {hash}")?;
            }
            Action::SetOwners(digest) => writeln!(f, "owners-sha256: {digest}")?,
        }
        writeln!(f, "serial: {}", self.serial)
    }
}

impl FromStr for ApprovalStatement {
    type Err = InvalidStatement;

    /// Reads exactly what is written, and nothing else.
    fn from_str(text: &str) -> Result<Self, InvalidStatement> {
        if text.len() > MAX_STATEMENT_BYTES {
            return Err(InvalidStatement("it is too long"));
        }
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return Err(InvalidStatement("it does not begin with `cloister approval v1`"));
        }
        let app_id = value(&mut lines, "application: ", "a line `application: …` is missing")?;
        let app_id = app_id.parse().map_err(|_| InvalidStatement("its application is no id"))?;
        let action = value(&mut lines, "action: ", "a line `action: …` is missing")?;
        let action = Self::action(action, &mut lines)?;
        let serial = value(&mut lines, "serial: ", "a line `serial: …` is missing")?;
        let serial = serial.parse().ok().filter(|serial| (1..=MAX_SERIAL).contains(serial));
        let statement =
            Self { app_id, action, serial: serial.ok_or(InvalidStatement("its serial is none"))? };
        // Other cases of letters, leading zeros, line ends, further lines: all that could be read twice.
        if statement.to_string() == text {
            Ok(statement)
        } else {
            Err(InvalidStatement("it is not written in the one form that there is"))
        }
    }
}

impl ApprovalStatement {
    fn action(name: &str, lines: &mut Lines<'_>) -> Result<Action, InvalidStatement> {
        let mut hash = || {
            let hash = value(lines, "compose-hash: ", "a line `compose-hash: …` is missing")?;
            hash.parse().map_err(|_| InvalidStatement("its compose hash is none"))
        };
        match name {
            ALLOW => Ok(Action::AllowComposeHash(hash()?)),
            REVOKE => Ok(Action::RevokeComposeHash(hash()?)),
            SET_OWNERS => {
                let digest = value(lines, "owners-sha256: ", "a line `owners-sha256: …` is missing")?;
                let mut bytes = [0; 32];
                hex::decode_to_slice(digest, &mut bytes)
                    .map_err(|_| InvalidStatement("its digest of owners is none"))?;
                Ok(Action::SetOwners(OwnersDigest::from_bytes(bytes)))
            }
            _ => Err(InvalidStatement("its action is unknown")),
        }
    }
}

fn value<'a>(lines: &mut Lines<'a>, name: &str, missing: &'static str) -> Result<&'a str, InvalidStatement> {
    lines.next().and_then(|line| line.strip_prefix(name)).ok_or(InvalidStatement(missing))
}
