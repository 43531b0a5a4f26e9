//! What things cost per hour: the operator's list of sizes and prices.
//!
//! | What | Is charged |
//! |---|---|
//! | compute | the `hourly_rate` of a CVM's size; for other virtual CPUs or memory than the size has `vcpu_hour` and `memory_gb_hour` |
//! | storage | `storage_gb_hour` for each GiB of the data disk |
//! | GPUs | `gpu_hour` of each GPU's product, whether the size or the request asked for it |

mod default_list;
mod parse;

use std::collections::BTreeMap;

use rust_decimal::{Decimal, RoundingStrategy};

pub use parse::{MAX_FILE_BYTES, PriceError};

/// Decimals of every rate and every cost.
pub const DECIMALS: u32 = 9;
/// The key of `gpu_hour` for products that it does not list.
pub const ANY_PRODUCT: &str = "*";
/// Sizes without GPUs, where the list names no other family.
pub const CPU_FAMILY: &str = "cpu";
/// Sizes with GPUs, where the list names no other family.
pub const GPU_FAMILY: &str = "gpu";

/// GPUs of a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeGpus {
    /// How many.
    pub count: u32,
    /// Their product as nodes report it: PCI vendor and device, such as `10de:2335`.
    pub product: String,
}

/// A size that CVMs can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// Id, such as `tdx.small`.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// The group that it is listed in.
    pub family: String,
    /// Virtual CPUs.
    pub vcpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Data disk in GiB where a request names none.
    pub disk_gb: u32,
    /// GPUs, if it has any.
    pub gpus: Option<SizeGpus>,
    /// Price of the virtual CPUs and the memory for an hour; GPUs and the disk are not in it.
    pub hourly_rate: Decimal,
}

/// What is charged for a CVM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Billed {
    /// Id of its size, if it has one.
    pub instance_type: Option<String>,
    /// Virtual CPUs.
    pub vcpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Data disk in GiB.
    pub disk_gb: u32,
    /// GPUs by product.
    pub gpus: BTreeMap<String, u32>,
}

/// What a CVM costs per hour, by what is charged; none has more than [`DECIMALS`] decimals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// Virtual CPUs and memory, while it runs.
    pub compute: Decimal,
    /// The data disk, as long as the CVM exists.
    pub storage: Decimal,
    /// GPUs, while it runs.
    pub gpu: Decimal,
}

impl Rates {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Decimal {
        self.compute.saturating_add(self.storage).saturating_add(self.gpu)
    }
}

/// Sizes and prices of an installation. The default has the usual sizes and charges nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceList {
    currency: String,
    sizes: Vec<Size>,
    storage_gb_hour: Decimal,
    vcpu_hour: Decimal,
    memory_gb_hour: Decimal,
    gpu_hour: BTreeMap<String, Decimal>,
}

impl PriceList {
    /// Reads an operator's list, a JSON document, and refuses what cannot be meant.
    pub fn parse(text: &[u8]) -> Result<Self, PriceError> {
        parse::parse(text)
    }

    /// Code of the currency, such as `USD`.
    #[must_use]
    pub fn currency(&self) -> &str {
        &self.currency
    }

    /// All sizes, in the order of the list.
    #[must_use]
    pub fn sizes(&self) -> &[Size] {
        &self.sizes
    }

    /// The size with an id.
    #[must_use]
    pub fn size(&self, id: &str) -> Option<&Size> {
        self.sizes.iter().find(|size| size.id == id)
    }

    /// What a request that names no size gets: the first one without GPUs.
    #[must_use]
    pub fn default_size(&self) -> Option<&Size> {
        self.sizes.iter().find(|size| size.gpus.is_none())
    }

    /// The size without GPUs that has just these virtual CPUs and this memory in MiB.
    #[must_use]
    pub fn size_of(&self, vcpu: u32, memory_mb: u32) -> Option<&Size> {
        let mut without_gpus = self.sizes.iter().filter(|size| size.gpus.is_none());
        without_gpus.find(|size| (size.vcpu, size.memory_mb) == (vcpu, memory_mb))
    }

    /// What a size costs per hour with its GPUs, without a disk.
    #[must_use]
    pub fn size_rate(&self, size: &Size) -> Decimal {
        let gpus = size.gpus.as_ref().map_or(Decimal::ZERO, |gpus| self.gpu_rate(&gpus.product, gpus.count));
        size.hourly_rate.saturating_add(gpus)
    }

    /// Whether nothing of it costs anything.
    #[must_use]
    pub fn is_free(&self) -> bool {
        let single = [self.storage_gb_hour, self.vcpu_hour, self.memory_gb_hour];
        let sizes = self.sizes.iter().map(|size| size.hourly_rate);
        sizes.chain(single).chain(self.gpu_hour.values().copied()).all(|rate| rate.is_zero())
    }

    /// What a CVM costs per hour.
    #[must_use]
    pub fn rates(&self, billed: &Billed) -> Rates {
        let gpus = billed.gpus.iter().map(|(product, count)| self.gpu_rate(product, *count));
        Rates {
            compute: self.compute(billed),
            storage: times(self.storage_gb_hour, billed.disk_gb),
            gpu: gpus.fold(Decimal::ZERO, Decimal::saturating_add),
        }
    }

    /// The price of a size holds for what the size has; a larger CVM does not hide behind its name.
    fn compute(&self, billed: &Billed) -> Decimal {
        let named = billed.instance_type.as_deref().and_then(|id| self.size(id));
        let same = |size: &&Size| (size.vcpu, size.memory_mb) == (billed.vcpu, billed.memory_mb);
        if let Some(size) = named.filter(same).or_else(|| self.size_of(billed.vcpu, billed.memory_mb)) {
            return size.hourly_rate;
        }
        let memory_gb = Decimal::from(billed.memory_mb) / Decimal::from(1024);
        let memory = self.memory_gb_hour.saturating_mul(memory_gb);
        rounded(times(self.vcpu_hour, billed.vcpu).saturating_add(memory))
    }

    fn gpu_rate(&self, product: &str, count: u32) -> Decimal {
        let rate = self.gpu_hour.get(product).or_else(|| self.gpu_hour.get(ANY_PRODUCT));
        times(rate.copied().unwrap_or_default(), count)
    }
}

fn times(rate: Decimal, count: u32) -> Decimal {
    rate.saturating_mul(Decimal::from(count))
}

/// An amount with [`DECIMALS`] decimals, half up.
#[must_use]
pub fn rounded(amount: Decimal) -> Decimal {
    amount.round_dp_with_strategy(DECIMALS, RoundingStrategy::MidpointAwayFromZero)
}

#[cfg(test)]
mod tests;
