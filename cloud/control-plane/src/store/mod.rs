//! The only code that names the database. One set of SQL and migrations serves SQLite (embedded, one
//! process) and PostgreSQL (many control-plane replicas).
//!
//! Reads take the pool, changes take a [`Change`], a transaction that holds the write lock from its
//! first statement on, so that what it read stays true until it commits. Nothing is visible, or
//! durable, before [`Change::commit`] returned.

mod accounts;
mod allowances;
mod apps;
mod audit;
mod billing;
mod budgets;
mod cvm_changes;
mod cvm_settings;
mod cvms;
mod device_logins;
mod gpus;
mod guesses;
mod history;
mod idempotency;
mod inference;
mod instance_ids;
mod kmses;
mod metering;
mod nodes;
mod oauth;
mod openid;
mod operations;
mod os_images;
mod owners;
mod people;
mod platforms;
mod ports;
mod prepared_changes;
mod provisions;
mod quotes;
mod replicas;
mod reservations;
mod revisions;
mod rollouts;
mod routes;
mod ssh_keys;
#[cfg(test)]
pub(crate) mod tests;
mod untold;
mod update_provisions;
mod webhook_again;
mod webhook_deliveries;
mod webhook_events;
mod webhook_lookups;
mod webhook_queue;
mod webhooks;

use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use cloister_metering::PriceList;
use sqlx::AnyPool;
use sqlx::any::AnyPoolOptions;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};

pub use accounts::{ApiKeyRow, Caller, NewApiKey, UserRow, WorkspaceRow};
pub use allowances::AskedCvm;
pub use apps::{AppFacet, AppFilter, AppRow};
pub(crate) use audit::Subject;
pub use audit::{AuditActorFilter, AuditFilter};
pub use billing::{CreditRow, Credited, Funds, NewCredit, SETTLED_AFTER_MS};
pub use budgets::{BudgetRow, NewBudget};
pub use cvm_settings::{DueDeletion, PolicyChange};
pub use cvms::{CvmFilter, CvmRow, NewCvm, ObservedVm};
pub(crate) use device_logins::{DeviceLoginRow, NewDeviceLogin};
pub use history::RevisionSummary;
pub(crate) use idempotency::{Begun, Ending, KeptAnswer, NamedRequest, Run, Times};
pub use inference::{InferenceHour, InferenceHours, NewAttempt};
pub use instance_ids::InstanceIdFilter;
pub use metering::UsageScope;
pub use nodes::{JoinTokenRow, NodeRow, Usage};
pub(crate) use oauth::{NewOauthCode, OauthCodeRow, OauthKeyRow};
pub(crate) use openid::OpenidLoginRow;
pub use operations::{
    CancelRequest, EventRow, MAX_OPERATION_COUNT, NewOperation, OperationFilter, OperationRow,
};
pub use os_images::OsImageRow;
pub use owners::{
    AppOwnersRow, ApprovalRow, ApprovedAction, MAX_APPROVALS, NewApproval, OwnerProposalRow, RevocationRow,
    StoredOwners,
};
pub use people::PersonRow;
pub(crate) use people::SecondFactorRow;
pub use platforms::DeviceRow;
pub use prepared_changes::{NewPreparedChange, OpenChange, PreparedChangeRow, PreparedKind, PreparedState};
pub use provisions::ProvisionRow;
pub use quotes::{QuoteRow, RecentQuoteRow};
pub use reservations::{NewReservation, Reserved};
pub use revisions::{Configuration, GpuSlots, NewRevision, RevisionRow};
pub use rollouts::{MemberRow, NewMember, NewRollout, PlacedRow, RolloutRow};
pub use routes::RouteRow;
pub use ssh_keys::{NewSshKey, SshKeyRow};
pub use untold::UntoldRow;
pub use update_provisions::{UpdateProvisionCounts, UpdateProvisionRow};
pub use webhook_again::{MAX_REPLAYED, ReplayRange, Replayed, Resent};
pub use webhook_deliveries::{AttemptRow, DeliveryRow, WebhookStats};
pub use webhook_events::WebhookEventRow;
pub(crate) use webhook_events::{NewWebhookEvent, Recipient};
pub use webhook_lookups::DeliveryName;
pub(crate) use webhook_queue::{AttemptResult, Backlog, Candidate, Stretch, TakenDelivery};
pub use webhooks::{NewWebhook, WebhookChange, WebhookRow};

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
    /// Another run of the same request took over: what this one did is undone.
    #[error("another run of this request took over")]
    TakenOver,
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
    /// What is metered costs this.
    prices: Arc<PriceList>,
    /// Told when there is something new to be delivered.
    deliveries: Arc<Notify>,
}

/// An open transaction that may change things. Dropping it undoes everything.
pub struct Change {
    transaction: audit::Watched,
    engine: Engine,
    _writer: Option<OwnedMutexGuard<()>>,
    prices: Arc<PriceList>,
    /// Told after the commit if something is to be delivered.
    deliveries: Arc<Notify>,
    wakes_webhooks: bool,
    /// Whose change it is and what it is about; nobody's leaves no record.
    audit: Option<audit::Notes>,
}

impl Change {
    /// Makes everything done through this change visible and durable.
    /// Leaves a record where somebody changes something (`crate::audit`).
    pub async fn commit(mut self) -> Result<()> {
        self.record().await?;
        self.transaction.commit().await?;
        if self.wakes_webhooks {
            self.deliveries.notify_one();
        }
        Ok(())
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
        Ok(Self { pool, engine, writer: Arc::default(), prices: Arc::default(), deliveries: Arc::default() })
    }

    /// The same database with the operator's prices for what is metered from now on.
    #[must_use]
    pub fn with_prices(mut self, prices: PriceList) -> Self {
        self.prices = Arc::new(prices);
        self
    }

    /// Sizes and prices of the installation.
    #[must_use]
    pub fn prices(&self) -> &Arc<PriceList> {
        &self.prices
    }

    /// Begins a change. It holds the only write lock of an embedded database: do nothing slow in it. In an audit scope
    /// its commit leaves a record.
    pub async fn change(&self) -> Result<Change> {
        Ok(Change { audit: audit::Notes::of_now(), ..self.upkeep().await? })
    }

    /// Begins a change that is nobody's wish and leaves no record, whoever's request it happens in: last uses of keys,
    /// leases, what was looked up elsewhere.
    pub async fn upkeep(&self) -> Result<Change> {
        let (writer, begin) = match self.engine {
            Engine::Sqlite => (Some(Arc::clone(&self.writer).lock_owned().await), "BEGIN IMMEDIATE"),
            Engine::Postgres => (None, "BEGIN"),
        };
        let transaction = audit::Watched::new(self.pool.begin_with(begin).await?);
        let (prices, deliveries) = (Arc::clone(&self.prices), Arc::clone(&self.deliveries));
        let engine = self.engine;
        Ok(Change {
            transaction,
            engine,
            _writer: writer,
            prices,
            deliveries,
            wakes_webhooks: false,
            audit: None,
        })
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
