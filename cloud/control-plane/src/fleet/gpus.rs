//! GPUs of nodes: what CVMs need of them, and which a node gives.

use std::collections::BTreeSet;

use cloister_node_api::{GpuConfidentialMode, NodeGpu, Platform};

use super::standing::{NodeStanding, Refusal};
use crate::store::GpuSlots;

/// GPUs that a CVM needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GpuNeed {
    /// None.
    #[default]
    None,
    /// Exactly these PCI addresses.
    Slots(Vec<String>),
    /// This many of one product: a certain one, by id or name, or any.
    Count {
        /// How many, at least 1.
        count: u32,
        /// Which product.
        product: Option<String>,
    },
    /// Every GPU of a node.
    All,
}

impl GpuNeed {
    /// Exactly the GPUs of a stored list.
    #[must_use]
    pub fn exactly(slots: &GpuSlots) -> Self {
        if slots.0.is_empty() { Self::None } else { Self::Slots(slots.0.clone()) }
    }

    /// Whether any GPU is needed.
    #[must_use]
    pub const fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }
}

impl NodeStanding {
    /// The node's GPUs, assigned or not.
    #[must_use]
    pub fn gpus(&self) -> &[NodeGpu] {
        self.report.as_ref().map_or(&[], |report| &report.gpus)
    }

    /// GPUs that could be given to a CVM now.
    pub fn free_gpus(&self) -> impl Iterator<Item = &NodeGpu> {
        self.gpus().iter().filter(|gpu| gpu.assignable && !self.gpus_used.contains(&gpu.slot))
    }

    /// Chooses free GPUs in the order of their addresses. On machines with protected memory only those that
    /// protect theirs count; ones that are open to tools of developers only with development images.
    pub fn choose_gpus(&self, need: &GpuNeed, is_dev: bool) -> Result<Vec<String>, Refusal> {
        let kinds = Kinds { is_protected: self.is_protected(), is_dev };
        match need {
            GpuNeed::None => Ok(Vec::new()),
            GpuNeed::Slots(slots) => self.named_gpus(slots, kinds),
            GpuNeed::Count { count, product } => self.some_gpus(*count, product.as_deref(), kinds),
            GpuNeed::All => {
                let all: Vec<_> = self.gpus().iter().filter(|gpu| gpu.assignable).collect();
                if all.is_empty() {
                    return Err(Refusal::Gpus);
                }
                if all.iter().any(|gpu| !kinds.take(gpu)) {
                    return Err(Refusal::GpusUnprotected);
                }
                let slots: Vec<_> = all.into_iter().map(|gpu| gpu.slot.clone()).collect();
                let is_free = slots.iter().all(|slot| !self.gpus_used.contains(slot));
                if is_free { Ok(slots) } else { Err(Refusal::GpusOccupied) }
            }
        }
    }

    fn named_gpus(&self, slots: &[String], kinds: Kinds) -> Result<Vec<String>, Refusal> {
        let distinct: BTreeSet<&String> = slots.iter().collect();
        for slot in &distinct {
            let known = self.gpus().iter().find(|gpu| gpu.slot == **slot && gpu.assignable);
            let gpu = known.ok_or_else(|| Refusal::GpuUnknown((*slot).clone()))?;
            if !kinds.take(gpu) {
                return Err(Refusal::GpusUnprotected);
            }
            if self.gpus_used.contains(*slot) {
                return Err(Refusal::GpuTaken((*slot).clone()));
            }
        }
        Ok(distinct.into_iter().cloned().collect())
    }

    fn some_gpus(&self, count: u32, product: Option<&str>, kinds: Kinds) -> Result<Vec<String>, Refusal> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let is_named = |gpu: &&NodeGpu| product.is_none_or(|product| is_product(gpu, product));
        let fitting: Vec<_> = self.gpus().iter().filter(|gpu| gpu.assignable).filter(is_named).collect();
        let products: BTreeSet<&str> = fitting.iter().map(|gpu| gpu.product_id.as_str()).collect();
        // The refusal that comes nearest to success: lacking, unprotected, occupied.
        let mut refusal = Refusal::Gpus;
        for product in products {
            let of_product = || fitting.iter().filter(|gpu| gpu.product_id == product);
            if of_product().count() < count {
                continue;
            }
            let usable: Vec<_> = of_product().filter(|gpu| kinds.take(gpu)).collect();
            if usable.len() < count {
                if refusal == Refusal::Gpus {
                    refusal = Refusal::GpusUnprotected;
                }
                continue;
            }
            let mut free: Vec<String> = usable
                .iter()
                .map(|gpu| gpu.slot.clone())
                .filter(|slot| !self.gpus_used.contains(slot))
                .collect();
            if free.len() >= count {
                free.sort();
                free.truncate(count);
                return Ok(free);
            }
            refusal = Refusal::GpusOccupied;
        }
        Err(refusal)
    }

    /// Whether the memory of its CVMs is protected.
    fn is_protected(&self) -> bool {
        let platform = self.report.as_ref().map(|report| report.platform);
        matches!(platform, Some(Platform::Tdx | Platform::SevSnp))
    }
}

/// Which GPUs a CVM may get.
#[derive(Clone, Copy)]
struct Kinds {
    /// The memory of the machine's CVMs is protected, so that of their GPUs must be.
    is_protected: bool,
    /// The CVM boots a development image.
    is_dev: bool,
}

impl Kinds {
    const fn take(self, gpu: &NodeGpu) -> bool {
        !self.is_protected
            || match gpu.confidential_computing {
                GpuConfidentialMode::On => true,
                GpuConfidentialMode::Devtools => self.is_dev,
                GpuConfidentialMode::Off | GpuConfidentialMode::Unknown => false,
            }
    }
}

/// Whether a text names the product of a GPU.
fn is_product(gpu: &NodeGpu, product: &str) -> bool {
    gpu.product_id.eq_ignore_ascii_case(product) || gpu.product_name.eq_ignore_ascii_case(product)
}
