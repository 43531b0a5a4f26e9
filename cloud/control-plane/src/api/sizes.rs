//! The catalogue of sizes.

use cloister_management_api::InstanceType;

/// Smallest data disk in GiB.
pub(crate) const MIN_DISK_GB: i64 = 20;
/// The only family so far.
pub(crate) const CPU_FAMILY: &str = "cpu";
/// What a request that names no size gets.
const DEFAULT: &str = "tdx.small";

struct Size {
    id: &'static str,
    name: &'static str,
    vcpu: u32,
    memory_mb: u32,
}

const SIZES: [Size; 3] = [
    Size { id: DEFAULT, name: "Small", vcpu: 2, memory_mb: 4096 },
    Size { id: "tdx.medium", name: "Medium", vcpu: 4, memory_mb: 8192 },
    Size { id: "tdx.large", name: "Large", vcpu: 8, memory_mb: 16384 },
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

/// The catalogue id of a vCPU count and a memory size that are one.
pub(crate) fn id_of(vcpu: i64, memory_mb: i64) -> Option<&'static str> {
    let same = |size: &&Size| i64::from(size.vcpu) == vcpu && i64::from(size.memory_mb) == memory_mb;
    SIZES.iter().find(same).map(|size| size.id)
}

impl Size {
    fn wire(&self) -> InstanceType {
        InstanceType {
            id: self.id.to_owned(),
            name: self.name.to_owned(),
            description: format!("{} vCPU, {} GB memory", self.vcpu, self.memory_mb / 1024),
            vcpu: self.vcpu,
            memory_mb: self.memory_mb,
            hourly_rate: "0".to_owned(),
            requires_gpu: false,
            default_disk_size_gb: 20,
            family: Some(CPU_FAMILY.to_owned()),
        }
    }
}
