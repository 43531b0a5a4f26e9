//! The sizes of an installation whose operator has no list: nothing costs anything.

use std::collections::BTreeMap;

use rust_decimal::Decimal;

use super::{CPU_FAMILY, GPU_FAMILY, PriceList, Size, SizeGpus};

/// PCI vendor and device of an NVIDIA H200 SXM.
const H200: &str = "10de:2335";
/// PCI vendor and device of an NVIDIA B200.
const B200: &str = "10de:2901";

fn cpu(id: &str, name: &str, vcpu: u32, memory_mb: u32) -> Size {
    Size {
        id: id.to_owned(),
        name: name.to_owned(),
        family: CPU_FAMILY.to_owned(),
        vcpu,
        memory_mb,
        disk_gb: 20,
        gpus: None,
        hourly_rate: Decimal::ZERO,
    }
}

/// CPUs, memory and disk grow with the GPUs, so that a full node is divided evenly.
fn gpu(id: &str, name: &str, count: u32, product: &str) -> Size {
    Size {
        family: GPU_FAMILY.to_owned(),
        disk_gb: 200 * count,
        gpus: Some(SizeGpus { count, product: product.to_owned() }),
        ..cpu(id, name, 24 * count, 256 * 1024 * count)
    }
}

impl Default for PriceList {
    fn default() -> Self {
        let sizes = vec![
            cpu("tdx.small", "Small", 2, 4096),
            cpu("tdx.medium", "Medium", 4, 8192),
            cpu("tdx.large", "Large", 8, 16384),
            gpu("h200.small", "H200", 1, H200),
            gpu("h200.medium", "2 H200", 2, H200),
            gpu("h200.large", "4 H200", 4, H200),
            gpu("h200.xlarge", "8 H200", 8, H200),
            gpu("b200.small", "B200", 1, B200),
            gpu("b200.medium", "2 B200", 2, B200),
            gpu("b200.large", "4 B200", 4, B200),
            gpu("b200.xlarge", "8 B200", 8, B200),
        ];
        Self {
            currency: "USD".to_owned(),
            sizes,
            storage_gb_hour: Decimal::ZERO,
            vcpu_hour: Decimal::ZERO,
            memory_gb_hour: Decimal::ZERO,
            gpu_hour: BTreeMap::new(),
        }
    }
}
