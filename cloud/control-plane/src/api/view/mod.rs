//! CVMs as answers show them.

mod rates;
mod v20251028;
mod v20260121;

use std::borrow::Cow;

use cloister_app_compose::InstanceId;
use cloister_management_api::{
    ApiVersion, CvmId, CvmNetworkUrls, CvmState, CvmStatus, NodeRef, NodeStatus, NodeType, TeepodMeta, Vm,
    VmId,
};
use cloister_metering::PriceList;
use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use super::Api;
use super::scene::Scene;
use super::signed_url::Signer;
use crate::fleet::{self, NodeStanding};
use crate::kms::Kms;
use crate::store::{CvmRow, OperationRow};

/// Version of the runner that records have always named.
pub(crate) const RUNNER_VERSION: &str = "1.0.0";

/// The members of a stored compose document that answers show; the service wrote all of them.
#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the document's format")]
pub(crate) struct Shown<'a> {
    #[serde(default)]
    pub(crate) manifest_version: i64,
    #[serde(default, borrow)]
    pub(crate) runner: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(crate) docker_compose_file: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) pre_launch_script: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) features: Vec<Cow<'a, str>>,
    #[serde(default)]
    pub(crate) public_logs: bool,
    #[serde(default)]
    pub(crate) public_sysinfo: bool,
    #[serde(default)]
    pub(crate) public_tcbinfo: bool,
    #[serde(default)]
    gateway_enabled: bool,
    #[serde(default)]
    secure_time: bool,
    #[serde(default, borrow)]
    storage_fs: Cow<'a, str>,
}

impl<'a> Shown<'a> {
    pub(crate) fn of(app_compose: &'a str) -> Self {
        // An unreadable document shows nothing; an empty one always reads.
        serde_json::from_str(app_compose).unwrap_or(Self {
            manifest_version: 0,
            runner: Cow::Borrowed(""),
            docker_compose_file: None,
            pre_launch_script: None,
            features: Vec::new(),
            public_logs: false,
            public_sysinfo: false,
            public_tcbinfo: false,
            gateway_enabled: false,
            secure_time: false,
            storage_fs: Cow::Borrowed(""),
        })
    }

    pub(crate) fn features(&self) -> Vec<String> {
        self.features.iter().map(|feature| feature.clone().into_owned()).collect()
    }
}

/// One CVM with everything that it refers to.
pub(crate) struct View<'a> {
    cvm: &'a CvmRow,
    scene: &'a Scene,
    signer: Signer<'a>,
    /// Where its keys come from.
    kms: Option<&'a Kms>,
    prices: &'a PriceList,
    now_ms: i64,
}

impl<'a> View<'a> {
    pub(crate) fn new(api: &'a Api, scene: &'a Scene, cvm: &'a CvmRow) -> Self {
        let now_ms = api.clock.now_ms();
        let kms = cvm.kms_id.and_then(|id| api.kmses.get(id)).map(AsRef::as_ref);
        let signer = Signer::new(&api.log_url_key, &api.public_url, now_ms);
        Self { cvm, scene, signer, kms, prices: api.store.prices(), now_ms }
    }

    fn node(&self) -> Option<&NodeStanding> {
        self.scene.nodes.get(&self.cvm.node_id).map(AsRef::as_ref)
    }

    fn operation(&self) -> Option<&OperationRow> {
        self.scene.operations.get(&self.cvm.id)
    }

    fn in_progress(&self) -> bool {
        self.cvm.operation_id.is_some()
    }

    fn status(&self) -> String {
        self.cvm.status.as_str().to_owned()
    }

    fn instance_id(&self) -> Option<InstanceId> {
        self.cvm.instance_id.as_deref()?.parse().ok()
    }

    fn correlation_id(&self) -> Option<Uuid> {
        self.cvm.operation_id.as_deref()?.parse().ok()
    }

    /// Where the node's ingress routes to a host name.
    fn ingress(&self, host: &str) -> Option<String> {
        let template = &self.node()?.report.as_ref()?.ingress_url_template;
        (!template.is_empty()).then(|| template.replace("{host}", host))
    }

    fn app_url(&self) -> Option<String> {
        self.ingress(&self.cvm.app_id.to_string())
    }

    /// Domain of the ingress of its node.
    pub(crate) fn ingress_domain(&self) -> Option<String> {
        Some(self.node()?.report.as_ref()?.ingress_domain.clone()).filter(|domain| !domain.is_empty())
    }

    /// Where the ingress routes to it.
    pub(crate) fn urls(&self) -> Vec<CvmNetworkUrls> {
        let instance = self.instance_id().and_then(|id| self.ingress(&id.to_string()));
        let urls = |app| CvmNetworkUrls { app, instance: instance.unwrap_or_default() };
        self.app_url().map(urls).into_iter().collect()
    }

    /// The application's contract, if one decides: its id is the address.
    fn contract_address(&self) -> Option<String> {
        self.kms?.contract().map(|_| format!("0x{}", self.cvm.app_id))
    }

    fn uptime(&self) -> Option<String> {
        let is_up = self.cvm.exited_at_ms.is_none_or(|exited| self.cvm.started_at_ms > Some(exited));
        let started_ms = self.cvm.started_at_ms.filter(|_| is_up)?;
        Some(uptime((self.now_ms - started_ms).max(0) / 1000))
    }

    fn exited_at(&self) -> Option<Timestamp> {
        self.cvm.exited_at_ms.map(time)
    }

    /// The record that operations which change a CVM answer with.
    pub(crate) fn vm(&self, version: ApiVersion) -> Vm {
        let (cvm, shown) = (self.cvm, Shown::of(&self.cvm.app_compose));
        let teepod = self.node().map(|node| TeepodMeta { id: cvm.node_id, name: node.node.name.clone() });
        Vm {
            id: vm_id(cvm.id, version),
            name: cvm.name.clone(),
            status: self.status(),
            teepod_id: cvm.node_id,
            teepod,
            user_id: Some(cvm.user_id),
            app_id: cvm.app_id,
            vm_uuid: Some(cvm.vm_uuid),
            instance_id: self.instance_id(),
            app_url: self.app_url(),
            base_image: Some(cvm.os_image_name.clone()),
            vcpu: cvm.vcpu,
            memory: cvm.memory_mb,
            disk_size: cvm.disk_gb,
            manifest_version: Some(shown.manifest_version),
            version: Some(RUNNER_VERSION.to_owned()),
            features: Some(shown.features()),
            runner: Some(shown.runner.into_owned()),
            docker_compose_file: shown.docker_compose_file.map(Cow::into_owned),
            created_at: time(cvm.created_at_ms),
            encrypted_env_pubkey: cvm.env_pubkey.clone(),
            app_auth_contract_address: self.contract_address(),
        }
    }

    /// The state as the watcher of a boot sees it.
    pub(crate) fn state(&self) -> CvmState {
        CvmState {
            id: self.cvm.vm_uuid,
            name: self.cvm.name.clone(),
            status: self.status(),
            in_progress: self.in_progress(),
            vm_uuid: self.cvm.vm_uuid,
            instance_id: self.instance_id(),
            uptime: self.uptime(),
            exited_at: self.exited_at(),
            exit_reason: self.cvm.exit_reason.clone(),
            boot_progress: self.cvm.boot_progress.clone(),
            boot_error: self.cvm.boot_error.clone(),
            shutdown_progress: self.cvm.shutdown_progress.clone(),
            health: self.cvm.health.clone(),
            health_detail: self.cvm.health_detail.clone(),
            correlation_id: self.correlation_id(),
        }
    }

    /// The status under the UUID as the request spelt it.
    pub(crate) fn batch_status(&self, vm_uuid: String) -> CvmStatus {
        let operation = self.operation();
        CvmStatus {
            vm_uuid,
            status: self.status(),
            uptime: self.uptime(),
            in_progress: self.in_progress(),
            boot_progress: self.cvm.boot_progress.clone(),
            boot_error: self.cvm.boot_error.clone(),
            shutdown_progress: self.cvm.shutdown_progress.clone(),
            exit_reason: self.cvm.exit_reason.clone(),
            health: self.cvm.health.clone(),
            health_detail: self.cvm.health_detail.clone(),
            events: Vec::new(),
            operation_type: operation.map(|operation| operation.kind.to_string()),
            operation_started_at: operation.map(|operation| time(operation.started_at_ms)),
            correlation_id: self.correlation_id(),
        }
    }
}

/// Id of a CVM as a version writes it.
pub(crate) fn vm_id(id: i64, version: ApiVersion) -> VmId {
    if version.has_text_ids() { VmId::Hashed(CvmId(id)) } else { VmId::Integer(id) }
}

/// A node as lists of nodes show it.
pub(crate) fn node_ref(standing: &NodeStanding) -> NodeRef {
    let (report, device) = (standing.report.as_ref(), standing.device.as_ref());
    NodeRef {
        object_type: NodeType::default(),
        id: Some(standing.node.id),
        node_id: Some(standing.node.id),
        name: Some(standing.node.name.clone()),
        region: report.map(|report| report.region.clone()),
        device_id: Some(device.map_or_else(String::new, |device| device.device_id.clone())),
        ppid: Some(device.map_or_else(String::new, |device| device.ppid.clone())),
        status: Some(node_status(standing.status)),
        version: report.map(|report| report.version.clone()),
    }
}

pub(crate) const fn node_status(status: fleet::NodeStatus) -> NodeStatus {
    match status {
        fleet::NodeStatus::Online => NodeStatus::Online,
        fleet::NodeStatus::Offline => NodeStatus::Offline,
        fleet::NodeStatus::Maintenance => NodeStatus::Maintenance,
    }
}

/// A stored time.
pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Seconds for people: the units that matter, such as `1h 2m 3s`.
fn uptime(seconds: i64) -> String {
    let parts = [(seconds / 86400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm')];
    let leading = parts.into_iter().skip_while(|(count, _)| *count == 0);
    leading.map(|(count, unit)| format!("{count}{unit} ")).chain([format!("{}s", seconds % 60)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_begin_with_the_first_unit_that_counts() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (3600, "1h 0m 0s"), (90_061, "1d 1h 1m 1s")] {
            assert_eq!(uptime(seconds), text);
        }
    }

    #[test]
    fn a_compose_document_with_escapes_is_shown() {
        let shown = Shown::of(r#"{"docker_compose_file": "a\nb", "runner": "docker-compose", "x": {}}"#);
        assert_eq!(shown.docker_compose_file.as_deref(), Some("a\nb"));
        assert!(Shown::of("not json").docker_compose_file.is_none());
    }
}
