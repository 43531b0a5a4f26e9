//! Another size, image or other GPUs for a CVM that exists.

use std::sync::Arc;

use cloister_management_api::{ErrorCode, GpuConfig, ResizeRequest};
use cloister_metering::PriceList;

use super::Edit;
use crate::api::Api;
use crate::api::cvms::contract_app::check_image;
use crate::api::cvms::image_rules;
use crate::api::error::{ApiError, ApiResult};
use crate::api::governance::chain_reads_of;
use crate::api::gpu_wish;
use crate::api::placing::{Wish, placement_error};
use crate::api::sizes;
use crate::fleet::{GpuNeed, NodeStanding};
use crate::store::GpuSlots;

impl Edit<'_> {
    /// Sets the size: that of a named type, single values before it, and what is left out as it is.
    pub(crate) fn resize(&mut self, prices: &PriceList, request: &ResizeRequest) -> ApiResult<()> {
        let named = request.instance_type.as_deref();
        let size = named.map(|id| {
            let unknown = || ApiError::coded(ErrorCode::InstanceTypeUnknown).about("instance_type", id);
            sizes::get(prices, Some(id)).ok_or_else(unknown)
        });
        let size = size.transpose()?;
        if let Some(size) = size.as_ref().filter(|size| size.requires_gpu == self.wanted.gpus.0.is_empty()) {
            let message =
                "the instance type does not fit the CVM's GPUs; name them in gpus, or choose another type";
            let error = ApiError::explained(ErrorCode::IncompatibleParameters, message);
            return Err(error.about("instance_type", size.id.as_str()));
        }
        let wanted = &mut self.wanted;
        let keep = |value: i64| u32::try_from(value).ok();
        let of_size = |of: fn(&cloister_management_api::InstanceType) -> u32| size.as_ref().map(of);
        let wish = Wish {
            vcpu: request.vcpu.or_else(|| of_size(|size| size.vcpu)).or(keep(wanted.vcpu)),
            memory_mb: request.memory.or_else(|| of_size(|size| size.memory_mb)).or(keep(wanted.memory_mb)),
            disk_gb: request.disk_size.or(keep(wanted.disk_gb)),
            ..Wish::default()
        };
        let (id, needs) = wish.size(prices)?;
        if needs.disk_gb < self.cvm.disk_gb {
            let message =
                format!("the disk has {} GB and cannot shrink to {} GB", self.cvm.disk_gb, needs.disk_gb);
            let error = ApiError::explained(ErrorCode::InvalidParameter, message);
            return Err(error.about("disk_size", needs.disk_gb));
        }
        if (wanted.vcpu, wanted.memory_mb) != (needs.vcpu, needs.memory_mb) || named.is_some() {
            wanted.instance_type = size.filter(|size| size.requires_gpu).map(|size| size.id).or(id);
        }
        (wanted.vcpu, wanted.memory_mb, wanted.disk_gb) = (needs.vcpu, needs.memory_mb, needs.disk_gb);
        Ok(())
    }

    /// Sets the guest image: one of the CVM's node, by name, slug or hash.
    pub(crate) async fn image(&mut self, api: &Api, name: &str) -> ApiResult<()> {
        let node = self.node(api).await?;
        let own = node.image(self.cvm.os_image_hash);
        // Its own stays a choice: naming it changes nothing.
        let offered = node.images().iter().filter(|image| {
            !node.retired.contains(&image.os_image_hash) || image.os_image_hash == self.cvm.os_image_hash
        });
        let image = image_rules::choose(offered, own, !self.wanted.gpus.0.is_empty(), name)?;
        let contract = self.cvm.kms_id.and_then(|id| api.kmses.get(id)?.contract());
        if let Some(contract) = contract.filter(|_| image.os_image_hash != self.cvm.os_image_hash) {
            let _turn = chain_reads_of(api, self.cvm.workspace_id)?;
            check_image(api, contract, image.os_image_hash, &image.name).await?;
        }
        self.wanted.os_image_hash = image.os_image_hash;
        self.wanted.os_image_name.clone_from(&image.name);
        Ok(())
    }

    /// Sets the GPUs: the CVM's own if they fit, else free ones of its node too.
    pub(crate) async fn gpus(&mut self, api: &Api, config: &GpuConfig) -> ApiResult<()> {
        let need = gpu_wish::need(config)?;
        if need == GpuNeed::None {
            self.wanted.gpus = GpuSlots::default();
            return Ok(());
        }
        let mut node = (*self.node(api).await?).clone();
        let is_dev = node.image(self.wanted.os_image_hash).is_some_and(|image| image.is_dev);
        let own = &self.cvm.gpus.0;
        let mut used = api.store.gpus_in_use().await?.remove(&self.cvm.node_id).unwrap_or_default();
        used.retain(|slot| !own.contains(slot));
        let foreign = node.gpus().iter().map(|gpu| gpu.slot.clone()).filter(|slot| !own.contains(slot));
        node.gpus_used = foreign.collect();
        let chosen = node.choose_gpus(&need, is_dev).or_else(|_| {
            node.gpus_used = used;
            node.choose_gpus(&need, is_dev)
        });
        let chosen = chosen.map_err(|reason| placement_error(&node.refused(reason)))?;
        self.wanted.gpus = GpuSlots(chosen);
        Ok(())
    }

    async fn node(&self, api: &Api) -> ApiResult<Arc<NodeStanding>> {
        let gone = || ApiError::coded(ErrorCode::NodeUnknown);
        let node = api.fleet.standing(self.cvm.node_id).await?;
        Ok(Arc::new(node.ok_or_else(gone)?))
    }
}
