//! The meters of CVMs. Whatever changes a CVM's status, its resources or whether it is there makes its meters
//! what they should be, in the same transaction: [`Change::meter`] is the only writer of intervals.

mod reads;
mod silence;

use std::collections::BTreeMap;

use cloister_metering::{Billed, Meter, Standing, UsageType, minute_of, wanted};
use rust_decimal::Decimal;
use serde::Deserialize;
use sqlx::FromRow;

pub use reads::UsageScope;

use super::{Change, GpuSlots, ObservedVm, Result};
use crate::operations::CvmStatus;

/// When an interval ends that has not ended.
const OPEN: i64 = i64::MAX;
/// What GPUs are called whose product nobody knows.
const UNKNOWN_PRODUCT: &str = "unknown";

/// What [`wanted`] goes by.
#[derive(Debug, FromRow)]
struct Metered {
    workspace_id: i64,
    app_id: String,
    node_id: i64,
    #[sqlx(try_from = "String")]
    status: CvmStatus,
    instance_type: Option<String>,
    vcpu: i64,
    memory_mb: i64,
    disk_gb: i64,
    #[sqlx(try_from = "String")]
    gpus: GpuSlots,
    exited_at_ms: Option<i64>,
    deleted_at_ms: Option<i64>,
    is_established: i64,
    unaccounted_since_ms: Option<i64>,
}

/// Status of a CVM, when its VM started and ended as its node said last, and since when nobody can say.
type Known = (String, Option<i64>, Option<i64>, Option<i64>);

/// A meter that runs.
#[derive(Debug, PartialEq, Eq)]
struct Running {
    meter: Meter,
    from_ms: i64,
}

const METERED: &str = "SELECT workspace_id, app_id, node_id, status, instance_type, vcpu, memory_mb, disk_gb, \
     gpus, exited_at_ms, deleted_at_ms, is_established, unaccounted_since_ms FROM cvms WHERE id = $1";
// The literal lets both engines use the index of what is open.
const RUNNING: &str = "SELECT usage_type, what, rate_per_hour, from_ms FROM usage_intervals \
     WHERE cvm_id = $1 AND to_ms = 9223372036854775807 ORDER BY usage_type";
const LAST_END: &str = "SELECT to_ms FROM usage_intervals WHERE cvm_id = $1 AND usage_type = $2 \
     ORDER BY from_ms DESC LIMIT 1";

impl Metered {
    /// When the meters of a type end that should not run any more. What a node says is only believed as far as
    /// it lies in the past; [`Change::stop_meter`] sees to the other end.
    fn end_of(&self, usage_type: UsageType, now_ms: i64) -> i64 {
        let known_ms = self.unaccounted_since_ms.unwrap_or(now_ms);
        let ended_ms = self.exited_at_ms.filter(|_| usage_type != UsageType::Storage).unwrap_or(known_ms);
        known_ms.min(ended_ms).min(now_ms)
    }
}

impl Change {
    /// Makes the meters of a CVM what they should be from now on, as its row says.
    pub(super) async fn meter(&mut self, cvm_id: i64, now_ms: i64) -> Result<()> {
        self.meter_as_told(cvm_id, false, now_ms).await
    }

    /// Like [`Change::meter`]; its node may say just now that the CVM's application was started.
    pub(super) async fn meter_as_told(
        &mut self,
        cvm_id: i64,
        is_said_to_be_up: bool,
        now_ms: i64,
    ) -> Result<()> {
        let Some(cvm): Option<Metered> =
            sqlx::query_as(METERED).bind(cvm_id).fetch_optional(&mut *self.transaction).await?
        else {
            return Ok(());
        };
        let running = self.running_meters(cvm_id).await?;
        let standing = Standing {
            status: cvm.status.as_str(),
            is_deleted: cvm.deleted_at_ms.is_some(),
            is_unaccounted: cvm.unaccounted_since_ms.is_some(),
            is_established: cvm.is_established != 0,
            has_ended: cvm.exited_at_ms.is_some(),
            is_said_to_be_up,
            was_serving: running.iter().any(|meter| meter.meter.usage_type == UsageType::Compute),
        };
        if standing.is_created() && !standing.is_established {
            sqlx::query("UPDATE cvms SET is_established = 1 WHERE id = $1")
                .bind(cvm_id)
                .execute(&mut *self.transaction)
                .await?;
        }
        let wanted = if standing.serves() || standing.stores() {
            wanted(&standing, &self.billed(&cvm).await?, &self.prices)
        } else {
            Vec::new()
        };
        for old in running.iter().filter(|old| !wanted.contains(&old.meter)) {
            self.stop_meter(cvm_id, old, cvm.end_of(old.meter.usage_type, now_ms), now_ms).await?;
        }
        for new in wanted.iter().filter(|new| running.iter().all(|old| old.meter != **new)) {
            self.start_meter(cvm_id, &cvm, new, now_ms).await?;
        }
        Ok(())
    }

    /// Notes when the VM of a CVM ended, before its status follows that: the meters end then, not when the control
    /// plane hears of it.
    pub async fn note_exit(&mut self, cvm_id: i64, exited_at_ms: i64, now_ms: i64) -> Result<()> {
        sqlx::query("UPDATE cvms SET exited_at_ms = $2 WHERE id = $1")
            .bind(cvm_id)
            .bind(exited_at_ms)
            .execute(&mut *self.transaction)
            .await?;
        self.meter(cvm_id, now_ms).await
    }

    /// Looks at what a node says of a CVM before its row shows it: whether its application is up. A VM that its node
    /// has started again by itself ended unseen, at the latest then. One that went on while nobody could say so
    /// is what it was, whatever its guest says.
    pub(super) async fn note_restart(&mut self, cvm_id: i64, seen: &ObservedVm, now_ms: i64) -> Result<bool> {
        let row: Option<Known> = sqlx::query_as(
            "SELECT status, started_at_ms, exited_at_ms, unaccounted_since_ms FROM cvms WHERE id = $1",
        )
        .bind(cvm_id)
        .fetch_optional(&mut *self.transaction)
        .await?;
        let Some((status, started_at_ms, exited_at_ms, unaccounted_since_ms)) = row else { return Ok(false) };
        let (None, Some(before_ms), Some(since_ms)) = (exited_at_ms, started_at_ms, seen.started_at_ms)
        else {
            return Ok(seen.is_up());
        };
        if since_ms > before_ms {
            self.note_exit(cvm_id, since_ms, now_ms).await?;
        }
        let went_on = since_ms == before_ms && seen.exited_at_ms.is_none() && unaccounted_since_ms.is_some();
        Ok(seen.is_up() || (went_on && status == CvmStatus::Running.as_str()))
    }

    async fn running_meters(&mut self, cvm_id: i64) -> Result<Vec<Running>> {
        let rows: Vec<(String, String, String, i64)> =
            sqlx::query_as(RUNNING).bind(cvm_id).fetch_all(&mut *self.transaction).await?;
        let meter = |(usage_type, what, rate, from_ms): (String, String, String, i64)| {
            let meter =
                Meter { usage_type: reads::usage_type(&usage_type)?, what, rate: reads::rate(&rate)? };
            Ok(Running { meter, from_ms })
        };
        rows.into_iter().map(meter).collect()
    }

    /// What is charged for what a CVM has. GPUs are what its node calls them.
    async fn billed(&mut self, cvm: &Metered) -> Result<Billed> {
        let mut gpus = BTreeMap::new();
        if !cvm.gpus.0.is_empty() {
            let products = self.products_on(cvm.node_id).await?;
            let size = cvm.instance_type.as_deref().and_then(|id| self.prices.size(id));
            let usual = size.and_then(|size| size.gpus.as_ref()).map(|gpus| gpus.product.as_str());
            for slot in &cvm.gpus.0 {
                let product = products.get(slot).map(String::as_str).or(usual).unwrap_or(UNKNOWN_PRODUCT);
                *gpus.entry(product.to_owned()).or_default() += 1;
            }
        }
        let amount = |of: i64| u32::try_from(of.max(0)).unwrap_or(u32::MAX);
        Ok(Billed {
            instance_type: cvm.instance_type.clone(),
            vcpu: amount(cvm.vcpu),
            memory_mb: amount(cvm.memory_mb),
            disk_gb: amount(cvm.disk_gb),
            gpus,
        })
    }

    /// Products of the GPUs of a node by their PCI addresses, as it reported last.
    async fn products_on(&mut self, node_id: i64) -> Result<BTreeMap<String, String>> {
        #[derive(Deserialize)]
        struct Gpu {
            slot: String,
            product_id: String,
        }
        #[derive(Deserialize)]
        struct Gpus {
            #[serde(default)]
            gpus: Vec<Gpu>,
        }
        let report: Option<(Option<String>,)> = sqlx::query_as("SELECT report FROM nodes WHERE id = $1")
            .bind(node_id)
            .fetch_optional(&mut *self.transaction)
            .await?;
        let report = report.and_then(|(report,)| report);
        let gpus = report.and_then(|report| serde_json::from_str::<Gpus>(&report).ok());
        let gpus = gpus.map(|report| report.gpus).unwrap_or_default();
        Ok(gpus.into_iter().map(|gpu| (gpu.slot, gpu.product_id)).collect())
    }

    /// Ends a running meter at a moment, not before it began. What holds no whole minute is forgotten.
    async fn stop_meter(&mut self, cvm_id: i64, meter: &Running, end_ms: i64, now_ms: i64) -> Result<()> {
        let end_ms = end_ms.clamp(meter.from_ms, now_ms.max(meter.from_ms));
        self.unsettle(cvm_id, end_ms, now_ms).await?;
        let statement = if minute_of(end_ms) == minute_of(meter.from_ms) {
            "DELETE FROM usage_intervals WHERE cvm_id = $1 AND usage_type = $2 AND from_ms = $3 AND to_ms > $4"
        } else {
            "UPDATE usage_intervals SET to_ms = $4 WHERE cvm_id = $1 AND usage_type = $2 AND from_ms = $3"
        };
        sqlx::query(statement)
            .bind(cvm_id)
            .bind(meter.meter.usage_type.as_str())
            .bind(meter.from_ms)
            .bind(end_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Starts a meter, not before the last one of its type ended: a clock that steps back counts nothing twice.
    async fn start_meter(&mut self, cvm_id: i64, cvm: &Metered, meter: &Meter, now_ms: i64) -> Result<()> {
        let last: Option<(i64,)> = sqlx::query_as(LAST_END)
            .bind(cvm_id)
            .bind(meter.usage_type.as_str())
            .fetch_optional(&mut *self.transaction)
            .await?;
        let from_ms = last.map_or(now_ms, |(end_ms,)| end_ms.max(now_ms));
        self.unsettle(cvm_id, from_ms, now_ms).await?;
        sqlx::query(
            "INSERT INTO usage_intervals (cvm_id, usage_type, workspace_id, app_id, what, rate_per_hour, from_ms, \
             to_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(cvm_id)
        .bind(meter.usage_type.as_str())
        .bind(cvm.workspace_id)
        .bind(&cvm.app_id)
        .bind(&meter.what)
        .bind(text_of(meter.rate))
        .bind(from_ms)
        .bind(OPEN)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}

/// A rate as it is stored: equal rates have equal texts.
fn text_of(rate: Decimal) -> String {
    rate.normalize().to_string()
}
