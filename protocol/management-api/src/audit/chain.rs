//! Whether records are a chain: complete from the first to the last, and none changed.

use serde_json::Value;

use super::{AUDIT_VERSION, AuditHead, AuditRecord, NO_RECORD, record_hash};
use crate::ids::WorkspaceId;

/// A record's place in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPlace {
    /// Its number; 0 before the first.
    pub sequence: i64,
    /// Its hash.
    pub hash: String,
}

/// What is wrong with a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditFault {
    /// A line that is no record.
    #[error("what follows record {after} is no record: {reason}")]
    Unreadable {
        /// The last record before.
        after: i64,
        /// Why it cannot be read.
        reason: String,
    },
    /// A record of a later form.
    #[error("record {0} has a form that this program does not know; use a newer one")]
    Version(i64),
    /// A record is missing, or one is there that does not belong here.
    #[error("record {found} stands where record {expected} should")]
    Sequence {
        /// The number that should follow.
        expected: i64,
        /// The number that does.
        found: i64,
    },
    /// A record of another chain.
    #[error("record {0} belongs to another chain")]
    Chain(i64),
    /// A record does not continue the one before.
    #[error("record {0} does not continue the record before: one of the two was changed")]
    Previous(i64),
    /// A record is older than the one before.
    #[error("record {0} has an earlier time than the record before")]
    Time(i64),
    /// A record does not have its hash.
    #[error("record {0} was changed: it does not have the hash that it names")]
    Hash(i64),
    /// The chain ends before a place that it had reached.
    #[error("the chain ends with record {end}, but it had record {kept} already: records were removed")]
    Truncated {
        /// Where it ends.
        end: i64,
        /// Where it was.
        kept: i64,
    },
    /// The chain has another record at a place that was kept.
    #[error("record {0} is not the one that the kept head names: the chain was rewritten")]
    Rewritten(i64),
}

/// Whose chain it is, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// That of the first record.
    Anybodys,
    /// Of a workspace, or of the installation.
    Of(Option<WorkspaceId>),
}

/// Checks a chain record by record, in constant memory.
#[derive(Debug, Clone)]
pub struct AuditChain {
    whose: Whose,
    last: AuditPlace,
    last_time: Option<jiff::Timestamp>,
    kept: Vec<AuditPlace>,
}

impl AuditChain {
    /// A chain whose records have to pass through all of these places, such as those of heads that were kept.
    #[must_use]
    pub fn through(kept: impl IntoIterator<Item = AuditPlace>) -> Self {
        let last = AuditPlace { sequence: 0, hash: NO_RECORD.to_owned() };
        Self { whose: Whose::Anybodys, last, last_time: None, kept: kept.into_iter().collect() }
    }

    /// A chain that has to be the one of this head and reach it.
    #[must_use]
    pub fn to_head(head: &AuditHead) -> Self {
        Self { whose: Whose::Of(head.workspace), ..Self::through([head.place()]) }
    }

    /// Adds a place that the chain has to pass through. Only before the first record.
    pub fn keep(&mut self, place: AuditPlace) {
        self.kept.push(place);
    }

    /// The last record that was checked.
    #[must_use]
    pub const fn last(&self) -> &AuditPlace {
        &self.last
    }

    /// Checks the next line of an export.
    pub fn line(&mut self, line: &str) -> Result<AuditRecord, AuditFault> {
        let unreadable = |error: serde_json::Error| AuditFault::Unreadable {
            after: self.last.sequence,
            reason: error.to_string(),
        };
        let value: Value = serde_json::from_str(line).map_err(unreadable)?;
        self.value(&value)
    }

    /// Checks the next record. The hash is over all members, those too that this program does not know.
    pub fn value(&mut self, value: &Value) -> Result<AuditRecord, AuditFault> {
        let record: AuditRecord = serde_json::from_value(value.clone()).map_err(|error| {
            AuditFault::Unreadable { after: self.last.sequence, reason: error.to_string() }
        })?;
        let found = record.sequence;
        if record.version != AUDIT_VERSION {
            return Err(AuditFault::Version(found));
        }
        let expected = self.last.sequence.saturating_add(1);
        if found != expected {
            return Err(AuditFault::Sequence { expected, found });
        }
        if self.whose == Whose::Anybodys {
            self.whose = Whose::Of(record.workspace);
        }
        if self.whose != Whose::Of(record.workspace) {
            return Err(AuditFault::Chain(found));
        }
        if record.hash != record_hash(value) {
            return Err(AuditFault::Hash(found));
        }
        if record.previous != self.last.hash {
            return Err(AuditFault::Previous(found));
        }
        if self.last_time.is_some_and(|last| record.time < last) {
            return Err(AuditFault::Time(found));
        }
        if self.kept.iter().any(|kept| kept.sequence == found && kept.hash != record.hash) {
            return Err(AuditFault::Rewritten(found));
        }
        self.last_time = Some(record.time);
        self.last = AuditPlace { sequence: found, hash: record.hash.clone() };
        Ok(record)
    }

    /// Checks that the chain reached every place that it has to; where it ends.
    pub fn finish(self) -> Result<AuditPlace, AuditFault> {
        let end = self.last.sequence;
        if let Some(beyond) = self.kept.iter().find(|kept| kept.sequence > end) {
            return Err(AuditFault::Truncated { end, kept: beyond.sequence });
        }
        let impossible =
            |kept: &&AuditPlace| kept.sequence <= 0 && (kept.sequence < 0 || kept.hash != NO_RECORD);
        match self.kept.iter().find(impossible) {
            Some(kept) => Err(AuditFault::Rewritten(kept.sequence)),
            None => Ok(self.last),
        }
    }
}

#[cfg(test)]
mod tests;
