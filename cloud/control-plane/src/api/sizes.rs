//! The catalogue of sizes.

use cloister_management_api::InstanceType;

/// Smallest data disk in GiB.
pub(crate) const MIN_DISK_GB: i64 = 20;
/// Sizes without GPUs.
pub(crate) const CPU_FAMILY: &str = "cpu";
/// Sizes with GPUs.
pub(crate) const GPU_FAMILY: &str = "gpu";
/// What a request that names no size gets.
const DEFAULT: &str = "tdx.small";

struct Size {
    id: &'static str,
    name: &'static str,
    vcpu: u32,
    memory_mb: u32,
    disk_gb: u32,
    /// GPUs, and their product as nodes report it.
    gpus: Option<(u32, &'static str)>,
}

const fn cpu(id: &'static str, name: &'static str, vcpu: u32, memory_mb: u32) -> Size {
    Size { id, name, vcpu, memory_mb, disk_gb: 20, gpus: None }
}

/// CPUs, memory and disk grow with the GPUs, so that a full node is divided evenly.
const fn gpu(id: &'static str, name: &'static str, count: u32, product: &'static str) -> Size {
    Size {
        id,
        name,
        vcpu: 24 * count,
        memory_mb: 256 * 1024 * count,
        disk_gb: 200 * count,
        gpus: Some((count, product)),
    }
}

/// PCI vendor and device of an NVIDIA H200 SXM.
const H200: &str = "10de:2335";
/// PCI vendor and device of an NVIDIA B200.
const B200: &str = "10de:2901";

const SIZES: [Size; 11] = [
    cpu(DEFAULT, "Small", 2, 4096),
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

/// All sizes.
pub(crate) fn all() -> Vec<InstanceType> {
    SIZES.iter().map(Size::wire).collect()
}

/// The size with an id, or the default one.
pub(crate) fn get(id: Option<&str>) -> Option<InstanceType> {
    let id = id.unwrap_or(DEFAULT);
    SIZES.iter().find(|size| size.id == id).map(Size::wire)
}

/// The catalogue id of a vCPU count and a memory size without GPUs that are one.
pub(crate) fn id_of(vcpu: i64, memory_mb: i64) -> Option<&'static str> {
    let same = |size: &&Size| i64::from(size.vcpu) == vcpu && i64::from(size.memory_mb) == memory_mb;
    SIZES.iter().filter(|size| size.gpus.is_none()).find(same).map(|size| size.id)
}

/// How many GPUs of which product a size has, if it has any.
pub(crate) fn gpus_of(id: Option<&str>) -> Option<(u32, Option<&'static str>)> {
    let size = SIZES.iter().find(|size| Some(size.id) == id)?;
    size.gpus.map(|(count, product)| (count, Some(product)))
}

impl Size {
    fn wire(&self) -> InstanceType {
        let gpus = self.gpus.map(|_| format!("{}, ", self.name)).unwrap_or_default();
        InstanceType {
            id: self.id.to_owned(),
            name: self.name.to_owned(),
            description: format!("{gpus}{} vCPU, {} GB memory", self.vcpu, self.memory_mb / 1024),
            vcpu: self.vcpu,
            memory_mb: self.memory_mb,
            hourly_rate: "0".to_owned(),
            requires_gpu: self.gpus.is_some(),
            gpu_count: self.gpus.map_or(0, |(count, _)| count),
            default_disk_size_gb: self.disk_gb,
            family: Some(if self.gpus.is_some() { GPU_FAMILY } else { CPU_FAMILY }.to_owned()),
        }
    }
}
