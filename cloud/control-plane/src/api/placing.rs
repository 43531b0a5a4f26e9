//! Choosing node, OS image, size and GPUs of a provision: what a request asks, in the words of the scheduler, and
//! what that answers, in the words of the catalogue.

use std::collections::BTreeMap;

use cloister_management_api::{ErrorCode, ProvisionAppRequest};
use cloister_metering::PriceList;
use cloister_node_api::NodeImage;

use super::error::{ApiError, ApiResult};
use super::gpu_wish;
use super::sizes;
pub(crate) use crate::fleet::version;
use crate::fleet::{
    Demand, Fleet, GpuNeed, ImageWish, NoNodeFits, PlaceError, PlacementError, Refusal, Requirements,
};

/// Most virtual CPUs of a request; far above what any node has.
const MAX_VCPU: u32 = 1024;
/// Least memory of a request in MiB.
const MIN_MEMORY_MB: u32 = 256;
/// Most memory of a request in MiB.
const MAX_MEMORY_MB: u32 = 16 * 1024 * 1024;
/// Largest data disk of a request in GiB.
const MAX_DISK_GB: u32 = 1024 * 1024;
/// Most nodes that a refusal names.
const MAX_NAMED: usize = 10;

/// What a request asks of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish {
    pub(crate) instance_type: Option<String>,
    pub(crate) vcpu: Option<u32>,
    pub(crate) memory_mb: Option<u32>,
    pub(crate) disk_gb: Option<u32>,
    pub(crate) image: Option<String>,
    pub(crate) prefer_dev: Option<bool>,
    pub(crate) node_id: Option<i64>,
    pub(crate) region: Option<String>,
    /// GPUs that are asked for beside those of the instance type.
    pub(crate) gpus: GpuNeed,
}

impl Wish {
    /// What the request for a provision asks.
    pub(crate) fn of(request: &ProvisionAppRequest) -> ApiResult<Self> {
        Ok(Self {
            instance_type: request.instance_type.clone(),
            vcpu: request.vcpu,
            memory_mb: request.memory,
            disk_gb: request.disk_size,
            image: request.image.clone(),
            prefer_dev: request.prefer_dev,
            node_id: request.teepod_id,
            region: request.region.clone(),
            gpus: request.gpus.as_ref().map(gpu_wish::need).transpose()?.unwrap_or_default(),
        })
    }
}

/// Where a CVM will run, and how large it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) node_id: i64,
    pub(crate) image: NodeImage,
    pub(crate) instance_type: Option<String>,
    pub(crate) needs: Requirements,
    /// PCI addresses of the GPUs.
    pub(crate) gpus: Vec<String>,
}

impl Wish {
    /// Chooses the best node among those that fit.
    pub(crate) async fn place(&self, fleet: &Fleet, prices: &PriceList) -> ApiResult<Placement> {
        let (instance_type, needs) = self.size(prices)?;
        let demand = Demand {
            needs,
            image: ImageWish { hash: None, name: self.image.clone(), dev: self.prefer_dev },
            node: self.node_id,
            region: self.region.clone(),
            avoid: None,
            siblings: BTreeMap::new(),
            devices: None,
        };
        let choice = fleet.place(&demand).await.map_err(|error| self.refusal(error))?;
        let needs = Requirements { os_image_hash: Some(choice.image.os_image_hash), ..demand.needs };
        Ok(Placement {
            node_id: choice.node_id,
            image: choice.image,
            instance_type,
            needs,
            gpus: choice.gpus,
        })
    }

    fn refusal(&self, error: PlaceError) -> ApiError {
        let none = match error {
            PlaceError::NoNodeFits(none) => none,
            PlaceError::Store(error) => return error.into(),
        };
        match self.node_id {
            Some(id) if none.rejected.is_empty() => {
                ApiError::coded(ErrorCode::NodeUnknown).about("teepod_id", id)
            }
            _ => self.name_image(no_node_error(&none)),
        }
    }

    fn name_image(&self, error: ApiError) -> ApiError {
        match &self.image {
            Some(name) if error.code() == Some(ErrorCode::ImageUnknown) => {
                error.about("image", name.as_str())
            }
            _ => error,
        }
    }

    /// The size that is asked for: those of a type, single values before it.
    pub(crate) fn size(&self, prices: &PriceList) -> ApiResult<(Option<String>, Requirements)> {
        let named = self.instance_type.as_deref();
        let size = sizes::get(prices, named).ok_or_else(|| {
            ApiError::coded(ErrorCode::InstanceTypeUnknown).about("instance_type", named.unwrap_or_default())
        })?;
        let vcpu = bounded("vcpu", self.vcpu, size.vcpu, 1..=MAX_VCPU)?;
        let memory_mb = bounded("memory", self.memory_mb, size.memory_mb, MIN_MEMORY_MB..=MAX_MEMORY_MB)?;
        let min_disk = u32::try_from(sizes::MIN_DISK_GB).unwrap_or(u32::MAX);
        let disk_gb = bounded("disk_size", self.disk_gb, size.default_disk_size_gb, min_disk..=MAX_DISK_GB)?;
        let gpus = gpu_wish::with_size(prices, &self.gpus, named)?;
        let instance_type = match named.filter(|_| size.requires_gpu) {
            Some(id) => Some(id.to_owned()),
            None => sizes::id_of(prices, vcpu, memory_mb).map(str::to_owned),
        };
        Ok((instance_type, Requirements { vcpu, memory_mb, disk_gb, os_image_hash: None, gpus }))
    }
}

/// The numbers of a dotted version as clients take them: three or four, nothing else.
pub(crate) fn wire_version(text: &str) -> Vec<u32> {
    let mut numbers = version(text);
    numbers.resize(numbers.len().clamp(3, 4), 0);
    numbers
}

fn bounded(
    member: &str,
    given: Option<u32>,
    default: u32,
    bounds: std::ops::RangeInclusive<u32>,
) -> ApiResult<i64> {
    let value = given.unwrap_or(default);
    if bounds.contains(&value) {
        return Ok(i64::from(value));
    }
    let message = format!("{member} must be from {} to {}", bounds.start(), bounds.end());
    Err(ApiError::explained(ErrorCode::InvalidParameter, message).about(member, value))
}

/// A node's refusal in the words of the catalogue.
pub(crate) fn placement_error(error: &PlacementError) -> ApiError {
    let code = match error {
        PlacementError::NodeGone => ErrorCode::NodeUnknown,
        PlacementError::Refused { reason, .. } => code_of(reason),
    };
    ApiError::explained(code, error.to_string())
}

const fn code_of(reason: &Refusal) -> ErrorCode {
    match reason {
        Refusal::Offline | Refusal::Maintenance | Refusal::Draining => ErrorCode::NodeNotAccessible,
        Refusal::Region | Refusal::Disk | Refusal::Device => ErrorCode::NoNodeMatches,
        Refusal::Slots => ErrorCode::NodeLacksSlots,
        Refusal::Vcpu => ErrorCode::NodeLacksVcpu,
        Refusal::Memory => ErrorCode::NodeLacksMemory,
        Refusal::Image => ErrorCode::ImageUnknown,
        Refusal::NoFittingImage => ErrorCode::NoCompatibleImage,
        Refusal::Gpus | Refusal::GpuUnknown(_) | Refusal::GpusUnprotected => ErrorCode::NodeLacksGpus,
        Refusal::GpusOccupied => ErrorCode::GpusOccupied,
        Refusal::GpuTaken(_) => ErrorCode::GpuAllocationFailed,
    }
}

/// Why no node fits: in the words of the catalogue where all nodes agree about the weightiest reason, with
/// what speaks against each node. Only nodes that anybody may use, or the caller named, are spoken of.
pub(crate) fn no_node_error(none: &NoNodeFits) -> ApiError {
    let firsts: Vec<_> = none.rejected.iter().filter_map(|one| Some((one, one.reasons.first()?))).collect();
    let mut error = match firsts.as_slice() {
        [(refusing, reason)] => {
            let message = match reason {
                // The catalogue's own words; the image is named in the details.
                Refusal::Image | Refusal::NoFittingImage => code_of(reason).title().to_owned(),
                _ => format!("node {} {reason}", refusing.name),
            };
            ApiError::explained(code_of(reason), message)
        }
        [(_, first), rest @ ..] if rest.iter().all(|(_, other)| code_of(other) == code_of(first)) => {
            ApiError::coded(code_of(first))
        }
        _ => ApiError::coded(ErrorCode::NoNodeMatches),
    };
    if none.rejected.len() > 1 {
        error = error.suggest(format!("Of the nodes, {}", none.summary()));
    }
    for rejected in none.rejected.iter().take(MAX_NAMED) {
        let reasons: Vec<_> = rejected.reasons.iter().map(ToString::to_string).collect();
        error = error.about_because("node", rejected.name.as_str(), reasons.join("; "));
    }
    error
}
