//! Operations and events of the past, as lists show them.

use std::collections::BTreeSet;

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::rows::select_operation;
use super::{EventRow, OperationRow};
use crate::operations::OperationKind;
use crate::store::{Result, Store};

/// Which operations of a CVM a list shows, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperationFilter {
    /// Started at or after.
    pub start_ms: Option<i64>,
    /// Started at or before.
    pub end_ms: Option<i64>,
    /// Only these kinds; empty means all.
    pub kinds: Vec<OperationKind>,
    /// Only those after this one in the list's order: its start and correlation id.
    pub after: Option<(i64, Uuid)>,
}

const PAGE: &str = select_operation!(
    "o.cvm_id = $1 AND o.started_at_ms >= $2 AND (o.started_at_ms, o.correlation_id) < ($3, $4) \
     ORDER BY o.started_at_ms DESC, o.correlation_id DESC LIMIT $5"
);
// The inner query needs nothing but the index by kind. Asked for whole rows at once, SQLite walks the index of all
// kinds, and with it the whole history where a kind is rare.
const PAGE_OF_KIND: &str = select_operation!(
    "o.correlation_id IN (SELECT k.correlation_id FROM operations k WHERE k.cvm_id = $1 \
     AND k.started_at_ms >= $2 AND (k.started_at_ms, k.correlation_id) < ($3, $4) AND k.kind = $6 \
     ORDER BY k.started_at_ms DESC, k.correlation_id DESC LIMIT $5)"
);
const COUNT: &str = "SELECT COUNT(*) FROM (SELECT 1 AS one FROM operations \
     WHERE cvm_id = $1 AND started_at_ms BETWEEN $2 AND $3 LIMIT $4) AS found";
const COUNT_OF_KIND: &str = "SELECT COUNT(*) FROM (SELECT 1 AS one FROM operations \
     WHERE cvm_id = $1 AND started_at_ms BETWEEN $2 AND $3 AND kind = $5 LIMIT $4) AS found";
const EVENTS: &str = "SELECT correlation_id, sequence, event_type, state, at_ms FROM operation_events \
     WHERE correlation_id IN (";

/// Counts of operations that match a filter end here.
pub const MAX_OPERATION_COUNT: i64 = 1_000;

impl Store {
    /// Events of an operation in order.
    pub async fn events(&self, correlation_id: Uuid) -> Result<Vec<EventRow>> {
        self.events_of(&[correlation_id]).await
    }

    /// Events of operations, at most some hundreds, those of each in order.
    pub async fn events_of(&self, operations: &[Uuid]) -> Result<Vec<EventRow>> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let places: Vec<_> = (1..=operations.len()).map(|number| format!("${number}")).collect();
        // Only numbers of parameters are put into the text.
        let text = AssertSqlSafe(format!("{EVENTS}{}) ORDER BY correlation_id, sequence", places.join(", ")));
        let mut query = sqlx::query_as(text);
        for id in operations {
            query = query.bind(id.to_string());
        }
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// A stretch of the operations of a CVM, newest first. What it costs depends on the stretch, not on how many
    /// operations there are: each kind that is asked for is a walk along its own index.
    pub async fn list_operations(
        &self,
        cvm_id: i64,
        filter: &OperationFilter,
        limit: i64,
    ) -> Result<Vec<OperationRow>> {
        let page = |statement: &'static str| {
            let (before_ms, before_id) = filter.before();
            sqlx::query_as(statement)
                .bind(cvm_id)
                .bind(filter.start_ms.unwrap_or(i64::MIN))
                .bind(before_ms)
                .bind(before_id)
                .bind(limit)
        };
        if filter.kinds.is_empty() {
            return Ok(page(PAGE).fetch_all(&self.pool).await?);
        }
        let mut rows: Vec<OperationRow> = Vec::new();
        for kind in filter.distinct_kinds() {
            rows.extend(page(PAGE_OF_KIND).bind(kind.as_str()).fetch_all(&self.pool).await?);
        }
        rows.sort_by_key(|row| std::cmp::Reverse((row.started_at_ms, row.correlation_id)));
        rows.truncate(usize::try_from(limit).unwrap_or_default());
        Ok(rows)
    }

    /// How many operations of a CVM a filter matches, whatever page is looked at; counted up to
    /// [`MAX_OPERATION_COUNT`] of each kind. How many there are at all is in the CVM's row.
    pub async fn count_operations(&self, cvm_id: i64, filter: &OperationFilter) -> Result<i64> {
        let count = |statement: &'static str| {
            sqlx::query_as::<_, (i64,)>(statement)
                .bind(cvm_id)
                .bind(filter.start_ms.unwrap_or(i64::MIN))
                .bind(filter.end_ms.unwrap_or(i64::MAX))
                .bind(MAX_OPERATION_COUNT)
        };
        if filter.kinds.is_empty() {
            return Ok(count(COUNT).fetch_one(&self.pool).await?.0);
        }
        let mut total = 0;
        for kind in filter.distinct_kinds() {
            total += count(COUNT_OF_KIND).bind(kind.as_str()).fetch_one(&self.pool).await?.0;
        }
        Ok(total)
    }
}

impl OperationFilter {
    /// Whether it lets every operation through.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.start_ms.is_none() && self.end_ms.is_none() && self.kinds.is_empty()
    }

    /// The place in the list's order behind which, exclusively, the stretch begins.
    fn before(&self) -> (i64, String) {
        // No id is smaller than an empty one.
        let end = (self.end_ms.unwrap_or(i64::MAX).saturating_add(1), String::new());
        match self.after {
            Some((started_at_ms, id)) => end.min((started_at_ms, id.to_string())),
            None => end,
        }
    }

    fn distinct_kinds(&self) -> BTreeSet<OperationKind> {
        self.kinds.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::embedded;

    /// What a filtered page costs must not depend on how many operations of other kinds there are.
    #[tokio::test]
    async fn operations_of_a_kind_are_found_by_their_index() {
        let dir = tempfile::tempdir().unwrap();
        let store = embedded(dir.path()).await;
        for statement in [PAGE_OF_KIND, COUNT_OF_KIND] {
            let mut query = sqlx::query_as(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")));
            query = query.bind(1_i64).bind(i64::MIN).bind(i64::MAX);
            query = if statement == PAGE_OF_KIND {
                query.bind("").bind(10_i64).bind("resize")
            } else {
                query.bind(10_i64).bind("resize")
            };
            let plan: Vec<(i64, i64, i64, String)> = query.fetch_all(&store.pool).await.unwrap();
            let plan: Vec<_> = plan.into_iter().map(|(.., line)| line).collect();
            assert!(plan.iter().any(|line| line.contains("INDEX operations_by_kind")), "{plan:?}");
            assert!(!plan.iter().any(|line| line.contains("operations_by_cvm")), "{plan:?}");
        }
    }
}
