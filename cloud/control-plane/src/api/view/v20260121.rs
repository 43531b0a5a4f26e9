//! CVMs as version 2026-01-21 and later ones show them.

use cloister_management_api::v20260121::{
    BillingPeriod, CvmInfo, CvmInfoDetail, CvmKms, Gateway, LogUrls, Os, Progress, Resource,
};
use cloister_management_api::{CvmId, UserId, UserRef, UserType, WorkspaceId, WorkspaceRef, WorkspaceType};
use sha2::{Digest, Sha256};

use super::{Shown, View, node_ref, time};
use crate::kms::Kms;
use crate::operations;

const MIB_PER_GIB: f64 = 1024.0;

impl View<'_> {
    fn progress(&self) -> Option<Progress> {
        let operation = self.operation()?;
        let target = operation.rules().target.map_or("deleted", operations::CvmStatus::as_str);
        Some(Progress {
            target: Some(target.to_owned()),
            started_at: Some(time(operation.started_at_ms)),
            correlation_id: Some(operation.correlation_id),
        })
    }

    fn os(&self) -> Os {
        let hash = self.cvm.os_image_hash;
        let image = self.node().and_then(|node| node.images().iter().find(|i| i.os_image_hash == hash));
        Os {
            name: Some(self.cvm.os_image_name.clone()),
            version: image.map(|image| image.version.clone()),
            is_dev: image.map(|image| image.is_dev),
            os_image_hash: Some(hash),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "sizes of CVMs are far below 2^52")]
    fn resource(&self) -> Resource {
        Resource {
            instance_type: self.cvm.instance_type.clone(),
            vcpu: Some(self.cvm.vcpu),
            memory_in_gb: Some(self.cvm.memory_mb as f64 / MIB_PER_GIB),
            disk_in_gb: Some(self.cvm.disk_gb),
            gpus: i64::try_from(self.cvm.gpus.0.len()).ok(),
            compute_billing_price: Some(self.hourly_rate().compute),
            billing_period: Some(if self.prices.is_free() {
                BillingPeriod::Skip
            } else {
                BillingPeriod::Hourly
            }),
        }
    }

    fn kms_info(&self, kms: &Kms) -> CvmKms {
        let contract = kms.contract();
        CvmKms {
            chain_id: contract.map(|contract| contract.wire_chain_id()),
            dstack_kms_address: contract.map(|contract| contract.hex_address()),
            dstack_app_address: self.contract_address(),
            deployer_address: None,
            rpc_endpoint: None,
            encrypted_env_pubkey: self.cvm.env_pubkey.clone(),
        }
    }

    fn logs(&self) -> LogUrls {
        let base = self.signer.vm_log(self.cvm.vm_uuid);
        let channel = |name| Some(format!("{base}&ch={name}"));
        LogUrls {
            serial: channel("serial"),
            stdout: channel("stdout"),
            stderr: channel("stderr"),
            container_log_base: None,
        }
    }

    /// An item of a list in version 2026-01-21 and later.
    pub(crate) fn info(&self) -> CvmInfo {
        let (cvm, shown) = (self.cvm, Shown::of(&self.cvm.app_compose));
        let workspace = self.scene.workspaces.get(&cvm.workspace_id);
        let creator = self.scene.users.get(&cvm.user_id);
        CvmInfo {
            id: CvmId(cvm.id),
            name: cvm.name.clone(),
            app_id: Some(cvm.app_id),
            vm_uuid: Some(cvm.vm_uuid),
            instance_id: self.instance_id(),
            resource: self.resource(),
            hourly_rate: Some(self.hourly_rate()),
            node_info: self.node().map(node_ref),
            os: Some(self.os()),
            kms_type: self.kms.map(|kms| kms.kind().to_owned()),
            kms_info: self.kms.map(|kms| self.kms_info(kms)),
            status: self.status(),
            in_progress: self.in_progress(),
            progress: self.progress(),
            compose_hash: Some(cvm.compose_hash),
            docker_compose_hash: shown.docker_compose_file.as_deref().map(sha256),
            pre_launch_script_hash: shown.pre_launch_script.as_deref().map(sha256),
            gateway: Gateway { base_domain: self.ingress_domain(), cname: None },
            logs: self.logs(),
            services: Vec::new(),
            endpoints: Some(self.urls()),
            public_logs: shown.public_logs,
            public_sysinfo: shown.public_sysinfo,
            public_tcbinfo: shown.public_tcbinfo,
            gateway_enabled: shown.gateway_enabled,
            secure_time: shown.secure_time,
            storage_fs: shown.storage_fs.into_owned(),
            workspace: workspace.map(|workspace| WorkspaceRef {
                object_type: WorkspaceType::default(),
                id: WorkspaceId(workspace.id),
                name: workspace.name.clone(),
                slug: Some(workspace.slug.clone()),
                avatar_url: None,
            }),
            creator: creator.map(|user| UserRef {
                object_type: UserType::default(),
                id: Some(UserId(user.id)),
                username: Some(user.username.clone()),
                avatar_url: None,
            }),
            created_at: Some(time(cvm.created_at_ms)),
            deleted_at: cvm.deleted_at_ms.map(time),
            listed: cvm.listed != 0,
            project_type: None,
        }
    }

    /// One CVM in version 2026-01-21 and later.
    pub(crate) fn info_detail(&self) -> CvmInfoDetail {
        CvmInfoDetail { info: self.info(), compose_file: serde_json::from_str(&self.cvm.app_compose).ok() }
    }
}

fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}
