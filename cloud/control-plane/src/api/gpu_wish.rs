//! GPUs in requests: `gpus` of a provision or an update, and those of an instance type.

use std::collections::BTreeSet;

use cloister_management_api::{ErrorCode, GpuConfig};
use cloister_metering::PriceList;
use serde_json::{Map, Value};

use super::error::{ApiError, ApiResult};
use super::sizes;
use crate::fleet::GpuNeed;

/// Most GPUs of one CVM.
const MAX_GPUS: usize = 16;

/// What `gpus` asks for: all of a node, a number of a product, or the listed PCI addresses.
pub(crate) fn need(config: &GpuConfig) -> ApiResult<GpuNeed> {
    let invalid = |message: &str| {
        Err(ApiError::explained(ErrorCode::InvalidParameter, message).about("gpus", Value::Null))
    };
    match config.attach_mode.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("listed") => {}
        Some("all") if config.gpus.is_empty() && config.count.is_none() => return Ok(GpuNeed::All),
        Some("all") => {
            return invalid("attach_mode all takes every GPU of a node and goes with no list and no count");
        }
        Some(_) => return invalid("attach_mode is listed or all"),
    }
    if let Some(count) = config.count {
        if !config.gpus.is_empty() {
            return invalid("gpus are given by a list or by a count, not by both");
        }
        if usize::try_from(count).map_or(true, |count| count > MAX_GPUS) {
            return invalid("a CVM has at most 16 GPUs");
        }
        let product = config.product_name.clone().filter(|name| !name.is_empty());
        return Ok(if count == 0 { GpuNeed::None } else { GpuNeed::Count { count, product } });
    }
    if config.gpus.len() > MAX_GPUS {
        return invalid("a CVM has at most 16 GPUs");
    }
    if config.gpus.is_empty() {
        return Ok(GpuNeed::None);
    }
    let text = |gpu: &Map<String, Value>, name: &str| {
        gpu.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let slots: Vec<_> = config.gpus.iter().map(|gpu| text(gpu, "slot")).collect();
    if slots.iter().all(Option::is_some) {
        let slots: Vec<String> = slots.into_iter().flatten().map(|slot| slot.to_ascii_lowercase()).collect();
        if slots.iter().collect::<BTreeSet<_>>().len() < slots.len() {
            return invalid("a GPU is listed twice");
        }
        return Ok(GpuNeed::Slots(slots));
    }
    // Without addresses the list only counts.
    let products: BTreeSet<_> = config.gpus.iter().map(|gpu| text(gpu, "product_id")).collect();
    match (slots.iter().all(Option::is_none), products.len(), u32::try_from(config.gpus.len())) {
        (true, 1, Ok(count)) => Ok(GpuNeed::Count { count, product: products.into_iter().next().flatten() }),
        _ => invalid("list every GPU by its slot, or GPUs of one product without slots"),
    }
}

/// The GPUs of a request together with those of its instance type.
pub(crate) fn with_size(
    prices: &PriceList,
    asked: &GpuNeed,
    instance_type: Option<&str>,
) -> ApiResult<GpuNeed> {
    let Some((count, product)) = sizes::gpus_of(prices, instance_type) else { return Ok(asked.clone()) };
    let of_size = || GpuNeed::Count { count, product: product.map(str::to_owned) };
    let fits = match asked {
        GpuNeed::None => return Ok(of_size()),
        // A number without a product says nothing against the size's.
        GpuNeed::Count { count: asked, product: None } if *asked == count => return Ok(of_size()),
        GpuNeed::Slots(slots) => u32::try_from(slots.len()) == Ok(count),
        GpuNeed::Count { count: asked, .. } => *asked == count,
        GpuNeed::All => true,
    };
    if fits {
        return Ok(asked.clone());
    }
    let message = format!("the instance type has {count} GPUs; ask for as many, or leave gpus out");
    Err(ApiError::explained(ErrorCode::IncompatibleParameters, message).about("gpus", count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_gpus_of_its_product() {
        let count =
            |count, product: Option<&str>| GpuNeed::Count { count, product: product.map(str::to_owned) };
        let h200 = count(1, Some("10de:2335"));
        for (asked, size, expected) in [
            (GpuNeed::None, Some("h200.small"), Some(h200.clone())),
            (count(1, None), Some("h200.small"), Some(h200)),
            (count(2, None), Some("h200.small"), None),
            (count(2, None), Some("tdx.small"), Some(count(2, None))),
            (GpuNeed::None, None, Some(GpuNeed::None)),
        ] {
            assert_eq!(with_size(&PriceList::default(), &asked, size).ok(), expected, "{asked:?} {size:?}");
        }
    }
}
