//! The catalogue of sizes: the operator's list as clients see it.

use cloister_management_api::InstanceType;
use cloister_metering::{PriceList, Size};

/// Smallest data disk in GiB.
pub(crate) const MIN_DISK_GB: i64 = 20;

/// All sizes.
pub(crate) fn all(prices: &PriceList) -> impl Iterator<Item = InstanceType> {
    prices.sizes().iter().map(|size| wire(prices, size))
}

/// The size with an id, or the default one.
pub(crate) fn get(prices: &PriceList, id: Option<&str>) -> Option<InstanceType> {
    let size = match id {
        Some(id) => prices.size(id),
        None => prices.default_size(),
    };
    size.map(|size| wire(prices, size))
}

/// The catalogue id of a vCPU count and a memory size without GPUs that are one.
pub(crate) fn id_of(prices: &PriceList, vcpu: i64, memory_mb: i64) -> Option<&str> {
    let size = prices.size_of(u32::try_from(vcpu).ok()?, u32::try_from(memory_mb).ok()?);
    size.map(|size| size.id.as_str())
}

/// How many GPUs of which product a size has, if it has any.
pub(crate) fn gpus_of<'a>(prices: &'a PriceList, id: Option<&str>) -> Option<(u32, Option<&'a str>)> {
    let gpus = prices.size(id?)?.gpus.as_ref()?;
    Some((gpus.count, Some(gpus.product.as_str())))
}

fn wire(prices: &PriceList, size: &Size) -> InstanceType {
    let gpus = size.gpus.as_ref().map(|_| format!("{}, ", size.name)).unwrap_or_default();
    InstanceType {
        id: size.id.clone(),
        name: size.name.clone(),
        description: format!("{gpus}{} vCPU, {} GB memory", size.vcpu, size.memory_mb / 1024),
        vcpu: size.vcpu,
        memory_mb: size.memory_mb,
        hourly_rate: prices.size_rate(size).normalize().to_string(),
        requires_gpu: size.gpus.is_some(),
        gpu_count: size.gpus.as_ref().map_or(0, |gpus| gpus.count),
        default_disk_size_gb: size.disk_gb,
        family: Some(size.family.clone()),
    }
}
