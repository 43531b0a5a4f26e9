//! The only code that names the database. One set of SQL and migrations serves SQLite (embedded, one
//! process) and PostgreSQL (many control-plane replicas).
//!
//! Reads take the pool, changes take a [`Change`], a transaction that holds the write lock from its
//! first statement on, so that what it read stays true until it commits. Nothing is visible, or
//! durable, before [`Change::commit`] returned.

mod accounts;
mod allowances;
mod apps;
mod cvm_changes;
mod cvm_settings;
mod cvms;
mod gpus;
mod history;
mod instance_ids;
mod kmses;
mod nodes;
mod operations;
mod os_images;
mod owners;
mod platforms;
mod ports;
mod prepared_changes;
mod provisions;
mod quotes;
mod replicas;
mod revisions;
mod rollouts;
mod routes;
mod ssh_keys;
#[cfg(test)]
pub(crate) mod tests;
mod update_provisions;
mod webhook_events;

use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use sqlx::any::AnyPoolOptions;
use sqlx::{Any, AnyPool, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

pub use accounts::{ApiKeyRow, Caller, NewApiKey, UserRow, WorkspaceRow};
pub use allowances::AskedCvm;
pub use apps::{AppFacet, AppFilter, AppRow};
pub use cvm_settings::{DueDeletion, PolicyChange};
pub use cvms::{CvmFilter, CvmRow, NewCvm, ObservedVm};
pub use history::RevisionSummary;
pub use instance_ids::InstanceIdFilter;
pub use nodes::{JoinTokenRow, NodeRow, Usage};
pub use operations::{
    CancelRequest, EventRow, MAX_OPERATION_COUNT, NewOperation, OperationFilter, OperationRow,
};
pub use os_images::OsImageRow;
pub use owners::{
    AppOwnersRow, ApprovalRow, ApprovedAction, MAX_APPROVALS, NewApproval, OwnerProposalRow, RevocationRow,
    StoredOwners,
};
pub use platforms::DeviceRow;
pub use prepared_changes::{NewPreparedChange, OpenChange, PreparedChangeRow, PreparedKind, PreparedState};
pub use provisions::ProvisionRow;
pub use quotes::{QuoteRow, RecentQuoteRow};
pub use revisions::{Configuration, GpuSlots, NewRevision, RevisionRow};
pub use rollouts::{MemberRow, NewMember, NewRollout, PlacedRow, RolloutRow};
pub use routes::RouteRow;
pub use ssh_keys::{NewSshKey, SshKeyRow};
pub use update_provisions::{UpdateProvisionCounts, UpdateProvisionRow};
pub use webhook_events::WebhookEventRow;

/// A failure of the database, or a stored value that this version does not understand.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or is out of reach.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("the database schema could not be migrated")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The database URL names an engine other than SQLite and PostgreSQL.
    #[error("the database URL must start with sqlite: or postgres:")]
    UnknownEngine,
}

impl StoreError {
    /// Whether a uniqueness constraint was violated.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error)) if error.is_unique_violation())
    }
}

/// Result of everything in the store.
pub type Result<T> = std::result::Result<T, StoreError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Sqlite,
    Postgres,
}

/// Handle to the database; cheap to clone.
#[derive(Clone)]
pub struct Store {
    pool: AnyPool,
    engine: Engine,
    /// SQLite has one writer: waiting here is fair, waiting in its busy handler is not.
    writer: Arc<Mutex<()>>,
}

/// An open transaction that may change things. Dropping it undoes everything.
pub struct Change {
    transaction: Transaction<'static, Any>,
    engine: Engine,
    _writer: Option<OwnedMutexGuard<()>>,
}

impl Change {
    /// Makes everything done through this change visible and durable.
    pub async fn commit(self) -> Result<()> {
        Ok(self.transaction.commit().await?)
    }

    async fn next_id(&mut self, sequence: &str) -> Result<i64> {
        let (id,): (i64,) =
            sqlx::query_as("UPDATE sequences SET value = value + 1 WHERE name = $1 RETURNING value")
                .bind(sequence)
                .fetch_one(&mut *self.transaction)
                .await?;
        Ok(id)
    }
}

impl Store {
    /// Opens the embedded database in a file, which is made when absent.
    pub async fn open_file(path: &Path) -> Result<Self> {
        Self::open(&format!("sqlite://{}?mode=rwc", path.display())).await
    }

    /// Opens the database at a `sqlite:` or `postgres:` URL and brings its schema up to date.
    pub async fn open(url: &str) -> Result<Self> {
        static DRIVERS: Once = Once::new();
        DRIVERS.call_once(sqlx::any::install_default_drivers);
        let engine = match url.split(':').next() {
            Some("sqlite") => Engine::Sqlite,
            Some("postgres" | "postgresql") => Engine::Postgres,
            _ => return Err(StoreError::UnknownEngine),
        };
        let options = AnyPoolOptions::new()
            .max_connections(match engine {
                Engine::Sqlite => 4,
                Engine::Postgres => 16,
            })
            .acquire_timeout(Duration::from_secs(10));
        let options = match engine {
            // FULL: what was committed survives a power cut, not only a crash.
            Engine::Sqlite => options.after_connect(|connection, _| {
                Box::pin(async move {
                    sqlx::raw_sql(
                        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
                         PRAGMA busy_timeout = 5000; PRAGMA cache_size = -2048;",
                    )
                    .execute(connection)
                    .await?;
                    Ok(())
                })
            }),
            Engine::Postgres => options,
        };
        let pool = options.connect(url).await?;
        sqlx::migrate!().run(&pool).await?;
        Ok(Self { pool, engine, writer: Arc::default() })
    }

    /// Begins a change. It holds the only write lock of an embedded database: do nothing slow in it.
    pub async fn change(&self) -> Result<Change> {
        let (writer, begin) = match self.engine {
            Engine::Sqlite => (Some(Arc::clone(&self.writer).lock_owned().await), "BEGIN IMMEDIATE"),
            Engine::Postgres => (None, "BEGIN"),
        };
        let transaction = self.pool.begin_with(begin).await?;
        Ok(Change { transaction, engine: self.engine, _writer: writer })
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }

    /// Ends all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
