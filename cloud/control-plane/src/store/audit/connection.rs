//! A transaction that knows whether it changed anything, so that it is no promise of the code that makes a change
//! whether it leaves a record.

use std::fmt;
use std::ops::{Deref, DerefMut};

use futures_util::future::{self, BoxFuture};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use sqlx::any::{AnyArguments, AnyQueryResult, AnyRow, AnyStatement, AnyTypeInfo};
use sqlx::error::BoxDynError;
use sqlx::{Any, Describe, Either, Error, Execute, Executor, SqlStr, Transaction};

/// An open transaction; what is sent through `&mut *transaction` is watched.
pub(in crate::store) struct Watched(Connection);

/// The connection of a transaction, and whether anything was changed through it.
pub(in crate::store) struct Connection {
    transaction: Transaction<'static, Any>,
    changed: bool,
}

impl Watched {
    pub(in crate::store) const fn new(transaction: Transaction<'static, Any>) -> Self {
        Self(Connection { transaction, changed: false })
    }

    /// Whether a row was added, changed or removed.
    pub(in crate::store) const fn has_changed(&self) -> bool {
        self.0.changed
    }

    pub(in crate::store) async fn commit(self) -> Result<(), Error> {
        self.0.transaction.commit().await
    }
}

impl Deref for Watched {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl DerefMut for Watched {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.0
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("changed", &self.changed).finish_non_exhaustive()
    }
}

/// Whether a statement changes anything when it finds rows: reading does not, taking the next number does not, nor does
/// setting a column to itself, which is how rows are locked.
fn is_change(sql: &str) -> bool {
    let sql = sql.trim_start();
    if sql.starts_with("SELECT ") || sql.starts_with("UPDATE sequences ") {
        return false;
    }
    let assigned = sql.strip_prefix("UPDATE ").and_then(|rest| {
        let (_, rest) = rest.split_once(" SET ")?;
        rest.split_once(" WHERE ")?.0.split_once(" = ")
    });
    assigned.is_none_or(|(column, value)| column.trim() != value.trim())
}

/// A statement that was taken apart to be looked at.
struct Statement {
    sql: SqlStr,
    arguments: Option<AnyArguments>,
    persistent: bool,
}

impl Statement {
    fn of<'q>(mut query: impl Execute<'q, Any>) -> Result<Self, Error> {
        let arguments = query.take_arguments().map_err(Error::Encode)?;
        let persistent = query.persistent();
        Ok(Self { sql: query.sql(), arguments, persistent })
    }
}

impl Execute<'_, Any> for Statement {
    fn sql(self) -> SqlStr {
        self.sql
    }

    fn statement(&self) -> Option<&AnyStatement> {
        None
    }

    fn take_arguments(&mut self) -> Result<Option<AnyArguments>, BoxDynError> {
        Ok(self.arguments.take())
    }

    fn persistent(&self) -> bool {
        self.persistent
    }
}

impl<'c> Executor<'c> for &'c mut Connection {
    type Database = Any;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<AnyQueryResult, AnyRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Any>,
    {
        let statement = match Statement::of(query) {
            Ok(statement) => statement,
            Err(error) => return stream::once(future::ready(Err(error))).boxed(),
        };
        let may_change = is_change(statement.sql.as_str());
        let Connection { transaction, changed } = self;
        let found = transaction.fetch_many(statement);
        found
            .inspect(move |step| {
                *changed |= may_change
                    && match step {
                        Ok(Either::Left(done)) => done.rows_affected() > 0,
                        Ok(Either::Right(_)) => true,
                        Err(_) => false,
                    };
            })
            .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<AnyRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Any>,
    {
        let statement = match Statement::of(query) {
            Ok(statement) => statement,
            Err(error) => return future::ready(Err(error)).boxed(),
        };
        let may_change = is_change(statement.sql.as_str());
        let Connection { transaction, changed } = self;
        let found = transaction.fetch_optional(statement);
        found.inspect(move |row| *changed |= may_change && matches!(row, Ok(Some(_)))).boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [AnyTypeInfo],
    ) -> BoxFuture<'e, Result<AnyStatement, Error>>
    where
        'c: 'e,
    {
        self.transaction.prepare_with(sql, parameters)
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Any>, Error>>
    where
        'c: 'e,
    {
        self.transaction.describe(sql)
    }
}

#[cfg(test)]
mod tests {
    use super::is_change;

    #[test]
    fn reading_counting_and_locking_change_nothing() {
        for sql in [
            "SELECT 1",
            "UPDATE sequences SET value = value + 1 WHERE name = $1 RETURNING value",
            "UPDATE workspaces SET cvm_count = cvm_count WHERE id = $1",
            "UPDATE users SET role = role WHERE id = $1",
        ] {
            assert!(!is_change(sql), "{sql}");
        }
        for sql in [
            "UPDATE workspaces SET cvm_count = cvm_count + $2 WHERE id = $1",
            "UPDATE cvms SET name = name, listed = $2 WHERE id = $1",
            "INSERT INTO x (a) SELECT 1",
            "DELETE FROM x WHERE id = $1",
            "WITH x AS (SELECT 1) DELETE FROM y",
        ] {
            assert!(is_change(sql), "{sql}");
        }
    }
}
