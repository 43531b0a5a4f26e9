//! A control plane that only listens, and a node with a hypervisor that only pretends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::{AppId, OsImageHash};
use cloister_development_tee::Vendor;
use cloister_evidence::{ImageMeasurement, Measurement};
use cloister_fleet_tls::{Authority, Credentials, Identity, client_config};
use cloister_node::{Config, Node, OnExit};
use cloister_node_api::{NodeError, NodeReport, Platform, VmReport, VmSpec, VmState, paths};
use jiff::Timestamp;
use reqwest::Method;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::sync::watch;
use uuid::Uuid;

use crate::control_plane::{Catalogue, listen};

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A control plane, a node's directories and, most of the time, the node.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) authority: Authority,
    /// Certifies the node's platform.
    pub(crate) vendor: Arc<Vendor>,
    /// What the control plane has for nodes.
    pub(crate) catalogue: Catalogue,
    pub(crate) config: Config,
    pub(crate) node: Option<Node>,
    reports: watch::Receiver<Option<NodeReport>>,
    client: reqwest::Client,
}

pub(crate) fn credentials(authority: &Authority, identity: &Identity) -> Credentials {
    authority.issue(identity, &["127.0.0.1".to_owned()], Timestamp::UNIX_EPOCH + now_since_epoch()).unwrap()
}

pub(crate) fn now_since_epoch() -> Duration {
    std::time::UNIX_EPOCH.elapsed().unwrap()
}

impl World {
    /// A running node with the pretending hypervisor.
    pub(crate) async fn new() -> Self {
        let mut world = Self::prepared().await;
        world.start().await;
        world
    }

    /// Everything except the node.
    pub(crate) async fn prepared() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::UNIX_EPOCH + now_since_epoch();
        let authority = Authority::load_or_create(&dir.path().join("fleet"), now).unwrap();
        let vendor = Arc::new(Vendor::load_or_create(&dir.path().join("vendor"), now).unwrap());
        let catalogue = Catalogue::default();
        let (address, reports) = listen(&authority, Arc::clone(&vendor), catalogue.clone()).await;
        let node = credentials(&authority, &Identity::Node("node-1".to_owned()));
        let mut config =
            Config::new(dir.path().join("node"), dir.path().join("images"), node, address.to_string());
        config.qemu = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/fake_qemu.py");
        config.platform = Some(Platform::Emulation);
        let client = client(&credentials(&authority, &Identity::ControlPlane));
        config.pci_devices = dir.path().join("no-devices");
        Self { dir, authority, vendor, catalogue, config, node: None, reports, client }
    }

    pub(crate) async fn start(&mut self) {
        self.node = Some(Node::start(self.config.clone()).await.unwrap());
    }

    pub(crate) async fn stop(&mut self, on_exit: OnExit) {
        self.node.take().unwrap().stop(on_exit).await;
    }

    /// Ends every VM.
    pub(crate) async fn end(mut self) {
        if self.node.is_none() {
            self.start().await;
        }
        self.stop(OnExit::Shutdown(Duration::ZERO)).await;
    }

    /// Calls the node as the control plane.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<serde_json::Value>,
    ) -> Result<T, (u16, NodeError)> {
        let (status, text) = self.raw(method, path, body).await;
        if status == 200 {
            Ok(serde_json::from_str(&text).unwrap())
        } else {
            Err((status, serde_json::from_str(&text).unwrap()))
        }
    }

    /// Uploads bytes as the control plane.
    pub(crate) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        bytes: Vec<u8>,
    ) -> Result<T, (u16, NodeError)> {
        let url = format!("https://{}{path}", self.node.as_ref().unwrap().address());
        let response = self.client.put(url).body(bytes).send().await.unwrap();
        let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
        if status == 200 {
            Ok(serde_json::from_str(&text).unwrap())
        } else {
            Err((status, serde_json::from_str(&text).unwrap()))
        }
    }

    /// Status and text of a call.
    pub(crate) async fn raw(
        &self,
        method: Method,
        path: &str,
        body: Option<serde_json::Value>,
    ) -> (u16, String) {
        let url = format!("https://{}{path}", self.node.as_ref().unwrap().address());
        let mut request = self.client.request(method, url);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// The answer to a request as another node for a tunnel to a port.
    pub(crate) async fn tunnel(&self, vm: Uuid, port: &str) -> reqwest::Response {
        let url = format!("https://{}/v1/vms/{vm}/ports/{port}", self.node.as_ref().unwrap().address());
        let client = client(&credentials(&self.authority, &Identity::Node("node-2".to_owned())));
        client.get(url).header("connection", "upgrade").header("upgrade", "tcp").send().await.unwrap()
    }

    /// A call as a holder of other credentials.
    pub(crate) async fn call_as(&self, identity: &Identity) -> u16 {
        let url = format!("https://{}/v1/vms/{}", self.node.as_ref().unwrap().address(), Uuid::nil());
        let client = client(&credentials(&self.authority, identity));
        client.get(url).send().await.unwrap().status().as_u16()
    }

    pub(crate) async fn prepare(&self, spec: &VmSpec) -> Result<VmReport, (u16, NodeError)> {
        let body = serde_json::to_value(spec).unwrap();
        self.call(Method::PUT, &format!("{}/{}", paths::VMS, spec.vm_uuid), Some(body)).await
    }

    pub(crate) async fn power(&self, vm: Uuid, verb: &str) -> Result<VmReport, (u16, NodeError)> {
        let body = (verb == "shutdown").then(|| serde_json::json!({ "timeout_s": 20 }));
        self.call(Method::POST, &format!("{}/{vm}/{verb}", paths::VMS), body).await
    }

    pub(crate) async fn drain(&self, vm: Uuid, timeout_s: u32) -> Result<VmReport, (u16, NodeError)> {
        let body = serde_json::json!({ "timeout_s": timeout_s });
        self.call(Method::POST, &format!("{}/{vm}/drain", paths::VMS), Some(body)).await
    }

    pub(crate) async fn end_drain(&self, vm: Uuid) -> Result<VmReport, (u16, NodeError)> {
        self.call(Method::DELETE, &format!("{}/{vm}/drain", paths::VMS), None).await
    }

    pub(crate) async fn get(&self, vm: Uuid) -> Result<VmReport, (u16, NodeError)> {
        self.call(Method::GET, &format!("{}/{vm}", paths::VMS), None).await
    }

    /// A VM that was prepared and started and whose guest is up.
    pub(crate) async fn running(&mut self, number: u128, mode: &str) -> Uuid {
        let spec = self.spec(number, mode);
        self.prepare(&spec).await.unwrap();
        self.power(spec.vm_uuid, "start").await.unwrap();
        self.reported(spec.vm_uuid, |vm| vm.boot_progress.as_deref() == Some("done")).await;
        spec.vm_uuid
    }

    /// A specification whose image tells the pretending hypervisor how to behave.
    pub(crate) fn spec(&self, number: u128, mode: &str) -> VmSpec {
        let name = if mode.is_empty() { "plain" } else { mode };
        spec(number, write_image(&self.dir.path().join("images"), name, mode))
    }

    /// Waits for a report with something in it.
    pub(crate) async fn report(&mut self, wanted: impl Fn(&NodeReport) -> bool) -> NodeReport {
        let found = self.reports.wait_for(|report| report.as_ref().is_some_and(&wanted));
        tokio::time::timeout(PATIENCE, found).await.expect("no such report in time").unwrap().clone().unwrap()
    }

    /// Waits for a report on one VM with something in it.
    pub(crate) async fn reported(&mut self, vm: Uuid, wanted: impl Fn(&VmReport) -> bool) -> VmReport {
        let of = |report: &NodeReport| report.vms.iter().find(|known| known.vm_uuid == vm).cloned();
        let report = self.report(|report| of(report).is_some_and(|vm| wanted(&vm))).await;
        of(&report).unwrap()
    }

    pub(crate) async fn reported_state(&mut self, vm: Uuid, state: VmState) -> VmReport {
        self.reported(vm, |vm| vm.state == state).await
    }

    pub(crate) fn vm_dir(&self, vm: Uuid) -> PathBuf {
        self.dir.path().join("node/vms").join(vm.to_string())
    }

    /// How many VM processes there are, whatever the node knows of them.
    pub(crate) fn processes(&self) -> usize {
        let ours = self.dir.path().join("node/vms").to_string_lossy().into_owned();
        let command_line = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.map(command_line).filter(|line| String::from_utf8_lossy(line).contains(&ours)).count()
    }

    pub(crate) fn pid(&self, vm: Uuid) -> Option<i32> {
        fs::read_to_string(self.vm_dir(vm).join("qemu.pid")).ok()?.trim().parse().ok()
    }
}

/// Whether a process lives.
pub(crate) fn runs(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that ended may wait for its parent to notice.
    status
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X']) && !rest.is_empty())
}

/// A test that fails leaves no process behind.
impl Drop for World {
    fn drop(&mut self) {
        let vms = fs::read_dir(self.dir.path().join("node/vms")).into_iter().flatten().flatten();
        for vm in vms {
            let Ok(pid) = fs::read_to_string(vm.path().join("qemu.pid")) else { continue };
            let command_line = fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
            if String::from_utf8_lossy(&command_line).contains(&*self.dir.path().to_string_lossy()) {
                let _ = Command::new("kill").args(["-9", pid.trim()]).status();
            }
        }
    }
}

fn client(credentials: &Credentials) -> reqwest::Client {
    reqwest::Client::builder()
        .tls_backend_preconfigured(client_config(credentials).unwrap())
        .no_proxy()
        .timeout(PATIENCE)
        .build()
        .unwrap()
}

pub(crate) fn spec(number: u128, image: OsImageHash) -> VmSpec {
    VmSpec {
        kms_urls: vec!["https://10.0.2.2:12001".to_owned()],
        gpus: Vec::new(),
        ports: Vec::new(),
        vm_uuid: Uuid::from_u128(number),
        workspace_id: 1,
        name: "Hello".to_owned(),
        app_id: AppId::from_bytes([0xaa; 20]),
        app_compose: "{}".to_owned(),
        os_image_hash: image,
        vcpu: 1,
        memory_mb: 512,
        disk_gb: 1,
        encrypted_env: Some("00ff".to_owned()),
        user_config: None,
    }
}

/// Makes a guest image of tiny files with this kernel command line.
pub(crate) fn write_image(images: &Path, name: &str, cmdline: &str) -> OsImageHash {
    write_image_with(images, name, cmdline, b"firmware", b"kernel")
}

/// [`write_image`] with a firmware and a kernel.
pub(crate) fn write_image_with(
    images: &Path,
    name: &str,
    cmdline: &str,
    firmware: &[u8],
    kernel: &[u8],
) -> OsImageHash {
    let dir = images.join(name);
    fs::create_dir_all(&dir).unwrap();
    let metadata = serde_json::json!({
        "name": name, "version": "0.1.0", "is_dev": true, "bios": "bios.bin", "kernel": "vmlinuz",
        "initrd": "initrd.img", "rootfs": "rootfs.erofs", "cmdline": cmdline,
    });
    let measurement = ImageMeasurement {
        firmware: Measurement::of(firmware),
        kernel: Measurement::of(kernel),
        initrd: Measurement::of(b"initrd"),
        cmdline: cmdline.to_owned(),
    };
    let mut sums = String::new();
    for (file, contents) in [
        ("bios.bin", firmware),
        ("vmlinuz", kernel),
        ("initrd.img", b"initrd"),
        ("rootfs.erofs", b"root"),
        ("metadata.json", metadata.to_string().as_bytes()),
        ("measurement.json", serde_json::to_string(&measurement).unwrap().as_bytes()),
    ] {
        fs::write(dir.join(file), contents).unwrap();
        sums += &format!("{}  {file}\n", hex::encode(Sha256::digest(contents)));
    }
    let hash = OsImageHash::from_bytes(Sha256::digest(&sums).into());
    fs::write(dir.join("sha256sum.txt"), sums).unwrap();
    fs::write(dir.join("digest.txt"), hash.to_string()).unwrap();
    hash
}
