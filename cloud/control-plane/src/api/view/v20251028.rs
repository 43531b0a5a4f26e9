//! CVMs as version 2025-10-28 shows them.

use cloister_management_api::v20251028::{CvmDetail, HostedCvm, MachineInfo, VmInfo};
use cloister_management_api::{CvmBasicInfo, CvmNode, KmsId, ManagedUser};

use super::{Shown, View, time};
use crate::kms::Kms;

impl View<'_> {
    fn cvm_node(&self) -> Option<CvmNode> {
        self.node().map(|node| CvmNode {
            id: node.node.id,
            name: node.node.name.clone(),
            region_identifier: node.report.as_ref().map(|report| report.region.clone()),
        })
    }

    fn machine(&self) -> MachineInfo {
        let cvm = self.cvm;
        MachineInfo {
            vcpu: cvm.vcpu,
            memory: cvm.memory_mb,
            disk_size: cvm.disk_gb,
            gpu_count: i64::try_from(cvm.gpus.0.len()).unwrap_or(i64::MAX),
        }
    }

    /// A CVM of an application in version 2025-10-28.
    pub(crate) fn basic_info(&self) -> CvmBasicInfo {
        let (cvm, node) = (self.cvm, self.cvm_node());
        let (teepod_name, region_identifier) =
            node.map(|node| (node.name, node.region_identifier)).unwrap_or_default();
        CvmBasicInfo {
            vm_uuid: Some(cvm.vm_uuid),
            app_id: cvm.app_id,
            name: cvm.name.clone(),
            status: self.status(),
            vcpu: cvm.vcpu,
            memory: cvm.memory_mb,
            disk_size: cvm.disk_gb,
            teepod_id: cvm.node_id,
            teepod_name,
            region_identifier,
            kms_type: self.kms.map(|kms| kms.kind().to_owned()),
            instance_type: cvm.instance_type.clone(),
            listed: Some(cvm.listed != 0),
            base_image: Some(cvm.os_image_name.clone()),
            kms_slug: self.kms.map(|kms| kms.slug().to_owned()),
            kms_id: self.kms.map(|kms| KmsId(kms.id())),
            instance_id: self.instance_id(),
            machine_info: Some(self.machine()),
            updated_at: Some(time(cvm.updated_at_ms)),
        }
    }

    /// An item of a list in version 2025-10-28.
    pub(crate) fn hosted(&self) -> HostedCvm {
        let cvm = self.cvm;
        let owner = self.scene.users.get(&cvm.user_id);
        HostedCvm {
            hosted: VmInfo {
                id: cvm.vm_uuid,
                name: cvm.name.clone(),
                status: self.status(),
                uptime: self.uptime().unwrap_or_default(),
                app_url: self.app_url(),
                app_id: cvm.app_id,
                instance_id: self.instance_id(),
                exited_at: self.exited_at(),
                boot_progress: cvm.boot_progress.clone(),
                boot_error: cvm.boot_error.clone(),
                shutdown_progress: cvm.shutdown_progress.clone(),
                image_version: Some(cvm.os_image_name.clone()),
                events: Vec::new(),
            },
            name: cvm.name.clone(),
            managed_user: owner.map(|user| ManagedUser { id: user.id, username: user.username.clone() }),
            node: self.cvm_node(),
            listed: cvm.listed != 0,
            status: self.status(),
            in_progress: self.in_progress(),
            dapp_dashboard_url: None,
            syslog_endpoint: Some(self.signer.vm_log(cvm.vm_uuid)),
            allow_upgrade: false,
            project_id: None,
            project_type: None,
            billing_period: None,
            kms_info: self.kms.map(Kms::info),
            vcpu: Some(cvm.vcpu),
            memory: Some(cvm.memory_mb),
            disk_size: Some(cvm.disk_gb),
            gateway_domain: self.ingress_domain(),
            public_urls: self.urls(),
            machine_info: Some(self.machine()),
            updated_at: Some(time(cvm.updated_at_ms)),
        }
    }

    /// One CVM in version 2025-10-28.
    pub(crate) fn detail(&self) -> CvmDetail {
        let (cvm, shown) = (self.cvm, Shown::of(&self.cvm.app_compose));
        CvmDetail {
            id: cvm.id,
            teepod_id: Some(cvm.node_id),
            teepod: self.cvm_node(),
            name: cvm.name.clone(),
            status: self.status(),
            in_progress: self.in_progress(),
            app_id: cvm.app_id,
            vm_uuid: Some(cvm.vm_uuid),
            instance_id: self.instance_id(),
            vcpu: cvm.vcpu,
            memory: cvm.memory_mb,
            disk_size: cvm.disk_gb,
            base_image: Some(cvm.os_image_name.clone()),
            encrypted_env_pubkey: cvm.env_pubkey.clone(),
            listed: cvm.listed != 0,
            project_id: None,
            project_type: None,
            instance_type: cvm.instance_type.clone(),
            public_sysinfo: shown.public_sysinfo,
            public_logs: shown.public_logs,
            dapp_dashboard_url: None,
            syslog_endpoint: Some(self.signer.vm_log(cvm.vm_uuid)),
            kms_info: self.kms.map(Kms::info),
            contract_address: self.contract_address(),
            deployer_address: None,
            scheduled_delete_at: cvm.scheduled_delete_at_ms.map(time),
            public_urls: self.urls(),
            gateway_domain: self.ingress_domain(),
            machine_info: Some(self.machine()),
            updated_at: Some(time(cvm.updated_at_ms)),
        }
    }
}
