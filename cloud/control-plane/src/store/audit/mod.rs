//! The audit log: who changed what. A record is written in the transaction of the change that it is about, behind
//! everything else, so that there is neither one without the other. Nothing here changes or removes a record.

mod connection;
mod records;
mod subjects;

use std::sync::Arc;

use cloister_management_api::{
    AUDIT_VERSION, AuditRecord, AuditTarget, NO_RECORD, WorkspaceId, configuration_hash,
};
use jiff::Timestamp;
use serde_json::Value;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AssertSqlSafe};

pub(super) use connection::Watched;
pub use records::{AuditActorFilter, AuditFilter};
pub(crate) use subjects::Subject;

use self::subjects::{Key, configuration, name_in};
use super::{Change, Engine, Result};
use crate::audit::{INSTALLATION, Scope};

/// What a change has been told about what it changes.
pub(super) struct Notes {
    scope: Arc<Scope>,
    noted: Vec<Noted>,
}

struct Noted {
    subject: Subject,
    /// Said by what changes it, not only by what locked it.
    is_meant: bool,
    id: Option<String>,
    before: Option<String>,
}

impl Notes {
    pub(super) fn of_now() -> Option<Self> {
        crate::audit::current().map(|scope| Self { scope, noted: Vec::new() })
    }

    /// What the record is about: rather what was meant than what was only locked, of the kind that the operation
    /// changes if there is one, and the first of those.
    fn chosen(&mut self) -> Option<Noted> {
        let kind = self.scope.named.kind;
        let rank = |noted: &Noted| (!noted.is_meant, noted.subject.found().kind != kind);
        let place = (0..self.noted.len()).min_by_key(|place| self.noted.get(*place).map(rank))?;
        Some(self.noted.swap_remove(place))
    }
}

impl Change {
    /// Says what is about to be changed. Only the first word about it reads how it is before.
    pub(crate) async fn about(&mut self, subject: Subject) -> Result<()> {
        self.note(subject, true).await
    }

    /// Says what was locked, which is mostly what is going to be changed.
    pub(super) async fn locked(&mut self, subject: Subject) -> Result<()> {
        self.note(subject, false).await
    }

    async fn note(&mut self, subject: Subject, is_meant: bool) -> Result<()> {
        let Some(notes) = &mut self.audit else { return Ok(()) };
        if let Some(known) = notes.noted.iter_mut().find(|known| known.subject == subject) {
            known.is_meant |= is_meant;
            return Ok(());
        }
        if is_meant {
            self.hold(&subject).await?;
        }
        let (id, before) = self.described(&subject).await?;
        if let Some(notes) = &mut self.audit {
            notes.noted.push(Noted { subject, is_meant, id, before });
        }
        Ok(())
    }

    /// Lets nobody else change a subject between what is read of it now and what is changed then: its record would name
    /// a `before` that was over already. An embedded database has one writer.
    async fn hold(&mut self, subject: &Subject) -> Result<()> {
        if self.engine == Engine::Sqlite {
            return Ok(());
        }
        let found = subject.found();
        // Only the name of a table and of its columns are put into the text.
        let sql = format!("SELECT 1 FROM {} FOR NO KEY UPDATE", found.row);
        bound(sqlx::query(AssertSqlSafe(sql)), found.keys).fetch_optional(&mut *self.transaction).await?;
        Ok(())
    }

    /// What a subject is called, and the hash of its configuration, as far as it exists.
    async fn described(&mut self, subject: &Subject) -> Result<(Option<String>, Option<String>)> {
        let found = subject.found();
        let query = bound(sqlx::query(found.sql), found.keys);
        let id = Some(found.id).filter(|id| !id.is_empty());
        let Some(row) = query.fetch_optional(&mut *self.transaction).await? else { return Ok((id, None)) };
        let document = configuration(&row)?;
        Ok((id.or_else(|| name_in(found.kind, &document)), Some(configuration_hash(&document))))
    }

    /// Writes the record of this change, if it is somebody's and changed anything.
    pub(super) async fn record(&mut self) -> Result<()> {
        let Some(mut notes) = self.audit.take().filter(|_| self.transaction.has_changed()) else {
            return Ok(());
        };
        if let Some(run) = notes.scope.run() {
            self.carry_out(run).await?;
        }
        let (target, before, after) = match notes.chosen() {
            None => {
                let named = &notes.scope.named;
                (AuditTarget { kind: named.kind.to_owned(), id: named.id.clone() }, None, None)
            }
            Some(chosen) => {
                let (id, after) = self.described(&chosen.subject).await?;
                let id = id.or(chosen.id).unwrap_or_else(|| notes.scope.named.id.clone());
                let kind = chosen.subject.found().kind.to_owned();
                (AuditTarget { kind, id }, chosen.before, after)
            }
        };
        self.append(&notes.scope, target, before, after).await
    }

    async fn append(
        &mut self,
        scope: &Scope,
        target: AuditTarget,
        before: Option<String>,
        after: Option<String>,
    ) -> Result<()> {
        let chain = scope.chain();
        let (sequence, previous, at_ms) = self.next_place(chain, scope.clock.now_ms()).await?;
        let mut record = AuditRecord {
            version: AUDIT_VERSION,
            workspace: (chain != INSTALLATION).then_some(WorkspaceId(chain)),
            sequence,
            time: Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::UNIX_EPOCH),
            actor: scope.actor.clone(),
            request_id: scope.request_id.clone(),
            operation: scope.operation.to_owned(),
            target,
            before,
            after,
            previous,
            hash: String::new(),
        };
        record.hash = record.computed_hash();
        self.insert_audit_record(chain, &record).await
    }

    /// Takes the next place of a chain, which nobody else extends before this change ends: its number, the hash of the
    /// record before, and its time, which is never before that one's.
    async fn next_place(&mut self, chain: i64, now_ms: i64) -> Result<(i64, String, i64)> {
        const TAKE: &str = "UPDATE audit_heads SET sequence = sequence + 1, \
             at_ms = CASE WHEN at_ms > $2 THEN at_ms ELSE $2 END WHERE chain = $1 RETURNING sequence, hash, at_ms";
        let taken =
            sqlx::query_as(TAKE).bind(chain).bind(now_ms).fetch_optional(&mut *self.transaction).await?;
        if let Some(place) = taken {
            return Ok(place);
        }
        // Two first records meet here: the second waits, adds nothing and takes the next place.
        sqlx::query(
            "INSERT INTO audit_heads (chain, sequence, hash, at_ms) VALUES ($1, 0, $2, 0) \
             ON CONFLICT (chain) DO NOTHING",
        )
        .bind(chain)
        .bind(NO_RECORD)
        .execute(&mut *self.transaction)
        .await?;
        Ok(sqlx::query_as(TAKE).bind(chain).bind(now_ms).fetch_one(&mut *self.transaction).await?)
    }
}

fn bound(query: Query<'static, Any, AnyArguments>, keys: Vec<Key>) -> Query<'static, Any, AnyArguments> {
    keys.into_iter().fold(query, |query, key| match key {
        Key::Number(number) => query.bind(number),
        Key::Text(text) => query.bind(text),
    })
}

impl super::Store {
    /// Records what is done without changing the database: nothing to write the record together with.
    pub(crate) async fn record_alone(&self, configuration: &Value) -> Result<()> {
        let Some(notes) = Notes::of_now() else { return Ok(()) };
        let mut change = self.upkeep().await?;
        if let Some(run) = notes.scope.run() {
            change.carry_out(run).await?;
        }
        let named = &notes.scope.named;
        let target = AuditTarget { kind: named.kind.to_owned(), id: named.id.clone() };
        change.append(&notes.scope, target, None, Some(configuration_hash(configuration))).await?;
        change.commit().await
    }
}
