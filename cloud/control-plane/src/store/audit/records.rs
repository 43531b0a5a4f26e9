//! Records of the audit log: adding and reading them.

use cloister_management_api::{
    AUDIT_VERSION, AuditActor, AuditRecord, AuditTarget, NO_RECORD, TokenId, UserId, WorkspaceId,
};
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, FromRow};

use crate::audit::INSTALLATION;
use crate::store::{Change, Result, Store};

const COLUMNS: &str = "chain, sequence, at_ms, actor_kind, actor_name, user_id, api_key_id, key_prefix, request_id, \
     operation, target_kind, target_id, before_hash, after_hash, previous_hash, hash";

/// Whose records a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditActorFilter {
    /// Of a user, or of a part of the system.
    Name(String),
    /// Of an API key.
    Key(i64),
    /// Of a kind, such as `commit_token`.
    Kind(String),
}

/// Which records of a chain a list shows, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those before this one.
    pub before: Option<i64>,
    /// Only those of somebody.
    pub actor: Option<AuditActorFilter>,
    /// Only those of an operation.
    pub operation: Option<String>,
    /// Only those about what has this id.
    pub target: Option<String>,
    /// At this time or later.
    pub from_ms: Option<i64>,
    /// At this time or earlier.
    pub to_ms: Option<i64>,
}

#[derive(FromRow)]
struct Row {
    chain: i64,
    sequence: i64,
    at_ms: i64,
    actor_kind: String,
    actor_name: Option<String>,
    user_id: Option<i64>,
    api_key_id: Option<i64>,
    key_prefix: Option<String>,
    request_id: Option<String>,
    operation: String,
    target_kind: String,
    target_id: String,
    before_hash: Option<String>,
    after_hash: Option<String>,
    previous_hash: String,
    hash: String,
}

impl From<Row> for AuditRecord {
    fn from(row: Row) -> Self {
        Self {
            version: AUDIT_VERSION,
            workspace: (row.chain != INSTALLATION).then_some(WorkspaceId(row.chain)),
            sequence: row.sequence,
            time: Timestamp::from_millisecond(row.at_ms).unwrap_or(Timestamp::UNIX_EPOCH),
            actor: AuditActor {
                kind: row.actor_kind,
                name: row.actor_name,
                user_id: row.user_id.map(UserId),
                key_id: row.api_key_id.map(TokenId),
                key_prefix: row.key_prefix,
            },
            request_id: row.request_id,
            operation: row.operation,
            target: AuditTarget { kind: row.target_kind, id: row.target_id },
            before: row.before_hash,
            after: row.after_hash,
            previous: row.previous_hash,
            hash: row.hash,
        }
    }
}

impl Change {
    /// Adds a record at a place that was just taken, and makes it the head.
    pub(super) async fn insert_audit_record(&mut self, chain: i64, record: &AuditRecord) -> Result<()> {
        // Only names of columns are put into the text.
        let places: Vec<_> = (1..=16).map(|number| format!("${number}")).collect();
        let sql = format!("INSERT INTO audit_records ({COLUMNS}) VALUES ({})", places.join(", "));
        sqlx::query(AssertSqlSafe(sql))
            .bind(chain)
            .bind(record.sequence)
            .bind(record.time.as_millisecond())
            .bind(&record.actor.kind)
            .bind(&record.actor.name)
            .bind(record.actor.user_id.map(|UserId(id)| id))
            .bind(record.actor.key_id.map(|TokenId(id)| id))
            .bind(&record.actor.key_prefix)
            .bind(&record.request_id)
            .bind(&record.operation)
            .bind(&record.target.kind)
            .bind(&record.target.id)
            .bind(&record.before)
            .bind(&record.after)
            .bind(&record.previous)
            .bind(&record.hash)
            .execute(&mut *self.transaction)
            .await?;
        sqlx::query("UPDATE audit_heads SET hash = $2 WHERE chain = $1")
            .bind(chain)
            .bind(&record.hash)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }
}

impl Store {
    /// The end of a chain: its last record's number and hash.
    pub async fn audit_head(&self, chain: i64) -> Result<(i64, String)> {
        let head: Option<(i64, String)> =
            sqlx::query_as("SELECT sequence, hash FROM audit_heads WHERE chain = $1")
                .bind(chain)
                .fetch_optional(&self.pool)
                .await?;
        Ok(head.unwrap_or_else(|| (0, NO_RECORD.to_owned())))
    }

    /// At most `limit` records of a chain behind one and up to another, in their order.
    pub async fn audit_stretch(
        &self,
        chain: i64,
        after: i64,
        until: i64,
        limit: i64,
    ) -> Result<Vec<AuditRecord>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM audit_records WHERE chain = $1 AND sequence > $2 AND sequence <= $3 \
             ORDER BY sequence LIMIT $4"
        );
        let query =
            sqlx::query_as::<_, Row>(AssertSqlSafe(sql)).bind(chain).bind(after).bind(until).bind(limit);
        Ok(query.fetch_all(&self.pool).await?.into_iter().map(AuditRecord::from).collect())
    }

    /// At most `limit` records of a chain that a filter lets through, newest first.
    pub async fn audit_page(&self, chain: i64, filter: &AuditFilter, limit: i64) -> Result<Vec<AuditRecord>> {
        // Times only grow along a chain: bounds of time are bounds of place, found by their index.
        let first = match filter.from_ms {
            Some(from_ms) => self.first_audit_record_at(chain, from_ms).await?.unwrap_or(i64::MAX),
            None => 0,
        };
        let end = match filter.to_ms.and_then(|to_ms| to_ms.checked_add(1)) {
            Some(after_ms) => self.first_audit_record_at(chain, after_ms).await?.unwrap_or(i64::MAX),
            None => i64::MAX,
        };
        let (conditions, texts, numbers) = filter.conditions();
        // Only names of columns and numbers of parameters are put into the text.
        let sql = format!(
            "SELECT {COLUMNS} FROM audit_records WHERE chain = $1 AND sequence < $2 AND sequence >= $3{conditions} \
             ORDER BY sequence DESC LIMIT $4"
        );
        let mut query = sqlx::query_as::<_, Row>(AssertSqlSafe(sql))
            .bind(chain)
            .bind(filter.before.unwrap_or(i64::MAX).min(end))
            .bind(first)
            .bind(limit);
        for text in texts {
            query = query.bind(text);
        }
        for number in numbers {
            query = query.bind(number);
        }
        Ok(query.fetch_all(&self.pool).await?.into_iter().map(AuditRecord::from).collect())
    }

    /// The number of the first record of a chain at a time or later.
    async fn first_audit_record_at(&self, chain: i64, at_ms: i64) -> Result<Option<i64>> {
        let first: Option<(i64,)> = sqlx::query_as(
            "SELECT sequence FROM audit_records WHERE chain = $1 AND at_ms >= $2 ORDER BY at_ms, sequence LIMIT 1",
        )
        .bind(chain)
        .bind(at_ms)
        .fetch_optional(&self.pool)
        .await?;
        Ok(first.map(|(sequence,)| sequence))
    }
}

impl AuditFilter {
    /// Conditions behind the four parameters that every query has, with their texts and then their numbers.
    fn conditions(&self) -> (String, Vec<String>, Vec<i64>) {
        let (mut text, mut texts, mut numbers) = (String::new(), Vec::new(), Vec::new());
        let mut equal = |column: &str, value: &str| {
            texts.push(value.to_owned());
            text.push_str(&format!(" AND {column} = ${}", 4 + texts.len()));
        };
        if let Some(operation) = &self.operation {
            equal("operation", operation);
        }
        if let Some(target) = &self.target {
            equal("target_id", target);
        }
        match &self.actor {
            Some(AuditActorFilter::Name(name)) => equal("actor_name", name),
            Some(AuditActorFilter::Kind(kind)) => equal("actor_kind", kind),
            Some(AuditActorFilter::Key(key)) => {
                numbers.push(*key);
                text.push_str(&format!(" AND api_key_id = ${}", 4 + texts.len() + numbers.len()));
            }
            None => {}
        }
        (text, texts, numbers)
    }
}
