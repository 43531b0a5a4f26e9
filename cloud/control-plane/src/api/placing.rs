//! Choosing the node and the OS image of a provision. Pure: nodes in, choice or refusal out.

use cloister_management_api::{ErrorCode, ProvisionAppRequest};
use cloister_node_api::NodeImage;

use super::error::{ApiError, ApiResult};
use super::sizes;
use crate::fleet::{NodeStanding, PlacementError, Requirements};

/// Most virtual CPUs of a request; far above what any node has.
const MAX_VCPU: u32 = 1024;
/// Least memory of a request in MiB.
const MIN_MEMORY_MB: u32 = 256;
/// Most memory of a request in MiB.
const MAX_MEMORY_MB: u32 = 16 * 1024 * 1024;
/// Largest data disk of a request in GiB.
const MAX_DISK_GB: u32 = 1024 * 1024;

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
}

impl From<&ProvisionAppRequest> for Wish {
    fn from(request: &ProvisionAppRequest) -> Self {
        Self {
            instance_type: request.instance_type.clone(),
            vcpu: request.vcpu,
            memory_mb: request.memory,
            disk_gb: request.disk_size,
            image: request.image.clone(),
            prefer_dev: request.prefer_dev,
            node_id: request.teepod_id,
            region: request.region.clone(),
        }
    }
}

/// Where a CVM will run, and how large it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) node_id: i64,
    pub(crate) image: NodeImage,
    pub(crate) instance_type: Option<String>,
    pub(crate) needs: Requirements,
}

impl Wish {
    /// Chooses the node with the most room among those that fit.
    pub(crate) fn place(&self, nodes: &[NodeStanding]) -> ApiResult<Placement> {
        let (instance_type, needs) = self.size()?;
        let candidates = self.candidates(nodes)?;
        let mut refusal = None;
        let mut best: Option<(f64, Placement)> = None;
        for node in candidates {
            let attempt = node
                .accept(&needs)
                .map_err(|error| placement_error(&error))
                .and_then(|()| self.image_of(node));
            match attempt {
                Ok(image) => {
                    let score = node.resource_score();
                    if best.as_ref().is_none_or(|(other, _)| score > *other) {
                        let needs = Requirements { os_image_hash: Some(image.os_image_hash), ..needs };
                        let (node_id, instance_type) = (node.node.id, instance_type.clone());
                        best = Some((score, Placement { node_id, image, instance_type, needs }));
                    }
                }
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        match (best, refusal) {
            (Some((_, placement)), _) => Ok(placement),
            (None, Some(refusal)) if self.node_id.is_some() || nodes.len() == 1 => Err(refusal),
            _ => Err(ApiError::coded(ErrorCode::NoNodeMatches)),
        }
    }

    fn size(&self) -> ApiResult<(Option<String>, Requirements)> {
        let named = self.instance_type.as_deref();
        let size = sizes::get(named).ok_or_else(|| {
            ApiError::coded(ErrorCode::InstanceTypeUnknown).about("instance_type", named.unwrap_or_default())
        })?;
        let vcpu = bounded("vcpu", self.vcpu, size.vcpu, 1..=MAX_VCPU)?;
        let memory_mb = bounded("memory", self.memory_mb, size.memory_mb, MIN_MEMORY_MB..=MAX_MEMORY_MB)?;
        let min_disk = u32::try_from(sizes::MIN_DISK_GB).unwrap_or(u32::MAX);
        let disk_gb = bounded("disk_size", self.disk_gb, size.default_disk_size_gb, min_disk..=MAX_DISK_GB)?;
        let instance_type = sizes::id_of(vcpu, memory_mb).map(str::to_owned);
        Ok((instance_type, Requirements { vcpu, memory_mb, disk_gb, os_image_hash: None }))
    }

    fn candidates<'n>(&self, nodes: &'n [NodeStanding]) -> ApiResult<Vec<&'n NodeStanding>> {
        if let Some(id) = self.node_id {
            let named = nodes.iter().find(|node| node.node.id == id);
            return named
                .map(|node| vec![node])
                .ok_or_else(|| ApiError::coded(ErrorCode::NodeUnknown).about("teepod_id", id));
        }
        let in_region = |node: &&NodeStanding| {
            self.region.as_ref().is_none_or(|region| {
                node.report.as_ref().is_some_and(|report| report.region.eq_ignore_ascii_case(region))
            })
        };
        Ok(nodes.iter().filter(|node| node.node.listed != 0).filter(in_region).collect())
    }

    /// The newest image of the wanted name and kind. Without a wish about the kind, development images
    /// come first.
    fn image_of(&self, node: &NodeStanding) -> ApiResult<NodeImage> {
        let named = |image: &&NodeImage| self.image.as_ref().is_none_or(|name| *name == image.name);
        let of_kind = |image: &&NodeImage| self.prefer_dev.is_none_or(|dev| dev == image.is_dev);
        let mut fitting: Vec<_> = node.images().iter().filter(named).filter(of_kind).collect();
        fitting.sort_by_key(|image| (image.is_dev, version(&image.version)));
        match (fitting.last(), &self.image) {
            (Some(image), _) => Ok((*image).clone()),
            (None, Some(name)) if !node.images().iter().any(|image| image.name == *name) => {
                Err(ApiError::coded(ErrorCode::ImageUnknown).about("image", name.as_str()))
            }
            _ => Err(ApiError::coded(ErrorCode::NoCompatibleImage)),
        }
    }
}

/// The numbers of a dotted version.
pub(crate) fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|number| number.parse().unwrap_or(0)).collect()
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
        PlacementError::Offline(_) | PlacementError::Maintenance(_) => ErrorCode::NodeNotAccessible,
        PlacementError::Vcpu(_) => ErrorCode::NodeLacksVcpu,
        PlacementError::Memory(_) => ErrorCode::NodeLacksMemory,
        PlacementError::Slots(_) => ErrorCode::NodeLacksSlots,
        PlacementError::Disk(_) => ErrorCode::NoNodeMatches,
        PlacementError::Image(_) => ErrorCode::ImageUnknown,
    };
    ApiError::explained(code, error.to_string())
}
