//! What a CVM costs.

use std::collections::BTreeMap;

use cloister_management_api::amount_text;
use cloister_management_api::v20260121::HourlyRate;
use cloister_metering::{Billed, Rates};

use super::View;

/// What GPUs are called whose product nobody knows.
const UNKNOWN_PRODUCT: &str = "unknown";

impl View<'_> {
    /// What it costs per hour: its disk always, the rest while it runs.
    pub(super) fn rates(&self) -> Rates {
        let amount = |of: i64| u32::try_from(of.max(0)).unwrap_or(u32::MAX);
        let size = self.cvm.instance_type.as_deref().and_then(|id| self.prices.size(id));
        let usual = size.and_then(|size| size.gpus.as_ref()).map(|gpus| gpus.product.as_str());
        let mut gpus = BTreeMap::new();
        for slot in &self.cvm.gpus.0 {
            let known = self.node().and_then(|node| node.gpus().iter().find(|gpu| gpu.slot == *slot));
            let product = known.map(|gpu| gpu.product_id.as_str()).or(usual).unwrap_or(UNKNOWN_PRODUCT);
            *gpus.entry(product.to_owned()).or_default() += 1;
        }
        self.prices.rates(&Billed {
            instance_type: self.cvm.instance_type.clone(),
            vcpu: amount(self.cvm.vcpu),
            memory_mb: amount(self.cvm.memory_mb),
            disk_gb: amount(self.cvm.disk_gb),
            gpus,
        })
    }

    /// The same on the wire, where GPUs belong to what computes.
    pub(super) fn hourly_rate(&self) -> HourlyRate {
        let rates = self.rates();
        HourlyRate {
            total: amount_text(rates.total()),
            compute: amount_text(rates.compute.saturating_add(rates.gpu)),
            disk: amount_text(rates.storage),
        }
    }
}
