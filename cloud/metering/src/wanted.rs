//! Which meters of a CVM should run: a table over its status, and what its node says.
//!
//! | Meter | Runs |
//! |---|---|
//! | storage | from the first success of the creation until the deletion |
//! | compute, GPU | while the CVM serves its tenant, which [`Serving`] says for each status |
//!
//! None runs while nobody can say how the CVM is.

use rust_decimal::Decimal;

use crate::intervals::UsageType;
use crate::prices::{Billed, PriceList};

/// When a CVM serves its tenant in a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    /// Not at all.
    Never,
    /// If it did before, until its node says that its VM has ended; and from when somebody who knows says that its
    /// application was started.
    AsTold,
}

/// The status that ends a creation.
const RUNNING: &str = "running";

/// Every status of a CVM.
pub const SERVING: [(&str, Serving); 10] = [
    // A creation that fails costs nothing.
    ("creating", Serving::Never),
    ("starting", Serving::AsTold),
    (RUNNING, Serving::AsTold),
    ("restarting", Serving::AsTold),
    ("updating", Serving::AsTold),
    ("shutting_down", Serving::AsTold),
    ("stopping", Serving::AsTold),
    ("stopped", Serving::Never),
    ("removing", Serving::AsTold),
    // A change without a rollback may leave an application that is up and not healthy.
    ("error", Serving::AsTold),
];

impl Serving {
    /// In the status of a name; an unknown one serves nobody.
    #[must_use]
    pub fn of(status: &str) -> Self {
        SERVING.iter().find(|(name, _)| *name == status).map_or(Self::Never, |(_, serving)| *serving)
    }
}

/// What is known of a CVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct Standing<'a> {
    /// Name of its status.
    pub status: &'a str,
    /// It was deleted.
    pub is_deleted: bool,
    /// Nobody can say how it is: its node is silent, or does not know it.
    pub is_unaccounted: bool,
    /// Its creation has succeeded some time.
    pub is_established: bool,
    /// Its node said last that its VM has ended.
    pub has_ended: bool,
    /// Its node, or the operation that made it `running`, says just now that its application was started.
    pub is_said_to_be_up: bool,
    /// It served its tenant until now.
    pub was_serving: bool,
}

impl Standing<'_> {
    /// Whether its creation has succeeded, now or before.
    #[must_use]
    pub fn is_created(&self) -> bool {
        self.is_established || self.status == RUNNING
    }

    /// Whether it serves its tenant.
    #[must_use]
    pub fn serves(&self) -> bool {
        let serves = match Serving::of(self.status) {
            Serving::Never => false,
            Serving::AsTold => self.was_serving || (self.is_said_to_be_up && self.is_created()),
        };
        serves && !self.is_deleted && !self.is_unaccounted && !self.has_ended
    }

    /// Whether it has a disk that its tenant can come back to.
    #[must_use]
    pub fn stores(&self) -> bool {
        self.is_created() && !self.is_deleted && !self.is_unaccounted
    }
}

/// A meter that should run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meter {
    /// Of what.
    pub usage_type: UsageType,
    /// What of it is used: the members of a JSON object.
    pub what: String,
    /// What an hour of it costs.
    pub rate: Decimal,
}

/// The meters that should run, in the order of their types.
#[must_use]
pub fn wanted(standing: &Standing<'_>, billed: &Billed, prices: &PriceList) -> Vec<Meter> {
    let rates = prices.rates(billed);
    let mut meters = Vec::new();
    if standing.serves() {
        meters.push(Meter { usage_type: UsageType::Compute, what: compute(billed), rate: rates.compute });
        if !billed.gpus.is_empty() {
            meters.push(Meter { usage_type: UsageType::Gpu, what: gpus(billed), rate: rates.gpu });
        }
    }
    if standing.stores() {
        let what = format!("\"disk_gb\":{}", billed.disk_gb);
        meters.push(Meter { usage_type: UsageType::Storage, what, rate: rates.storage });
    }
    meters
}

fn compute(billed: &Billed) -> String {
    let size = billed.instance_type.as_deref().map(|id| format!("\"instance_type\":{},", json(id)));
    format!("{}\"vcpu\":{},\"memory_mb\":{}", size.unwrap_or_default(), billed.vcpu, billed.memory_mb)
}

fn gpus(billed: &Billed) -> String {
    let counts: Vec<_> =
        billed.gpus.iter().map(|(product, count)| format!("{}:{count}", json(product))).collect();
    format!("\"gpus\":{{{}}}", counts.join(","))
}

/// A JSON string.
fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
