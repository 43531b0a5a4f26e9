use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use cloister_evidence::{EventLog, VersionedAttestation};
use cloister_ra_tls::{AttestedKey, Evidence, PeerIdentity, PeerPolicy, PeerVerifier, Role, Subject};
use cloister_verifier::{
    Clock, Collateral, CollateralCache, CollateralError, CollateralSources, InProcess, Policy, TrustRoot,
    TrustRoots, Verifier,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::*;
use crate::{CollateralOptions, PlatformKey, Vendor, VendorOptions};

fn now() -> Timestamp {
    "2026-11-21T12:34:56Z".parse().unwrap()
}

/// A vendor, its platform, and an executable on it.
struct Lab {
    dir: tempfile::TempDir,
    vendor: Vendor,
    platform: Arc<Platform>,
}

impl Lab {
    fn new() -> Self {
        let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
        let key = PlatformKey::generate().unwrap();
        let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now()).unwrap();
        let platform = Arc::new(Platform::new(key, &chain).unwrap());
        Self { dir: tempfile::tempdir().unwrap(), vendor, platform }
    }

    fn process(&self, executable: &[u8]) -> HostProcess {
        let path = self.dir.path().join("executable");
        std::fs::write(&path, executable).unwrap();
        HostProcess::measure(&self.dir.path().join("platform"), &path).unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("run/agent.sock")
    }

    fn serve(&self, process: HostProcess, platform: Option<Arc<Platform>>) -> HostProcessAgent {
        HostProcessAgent::serve(&self.socket(), Arc::new(process), watch::channel(platform).1).unwrap()
    }

    async fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        self.exchange(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await
    }

    async fn exchange(&self, request: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(self.socket()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// Who shows this evidence for its key, as others find out.
    fn identify(&self, key: &AttestedKey, answer: &Value) -> PeerIdentity {
        let collateral = self.vendor.collateral_with(&CollateralOptions::at(now())).unwrap();
        let collateral: Collateral =
            serde_json::from_value(serde_json::to_value(collateral).unwrap()).unwrap();
        let source = InProcess::new(move |_| Ok::<_, CollateralError>(collateral.clone()));
        let sources = CollateralSources::new().with(TrustRoot::Development, source);
        let roots = TrustRoots::vendors().with_development_root(self.vendor.root_der()).unwrap();
        let clock = Clock::fixed(now());
        let cache = CollateralCache::start(sources, clock.clone()).unwrap();
        let verifier =
            PeerVerifier::new(Verifier::new(roots, cache, clock), PeerPolicy::any_app(Policy::default()));
        let evidence = Evidence {
            quote: Some(hex::decode(answer["quote"].as_str().unwrap()).unwrap()),
            event_log: answer["event_log"].as_str().unwrap().to_owned(),
            attestation: None,
        };
        let day = SignedDuration::from_hours(24);
        let subject = Subject::new("kms", vec!["localhost".to_owned()], now() - day, now() + day);
        let certificate = key.certificate(&evidence, &subject, None).unwrap();
        (*verifier.chain(certificate.chain(), Role::Server).unwrap()).clone()
    }
}

#[tokio::test]
async fn others_verify_what_the_process_is() {
    let lab = Lab::new();
    let _agent = lab.serve(lab.process(b"a program"), Some(Arc::clone(&lab.platform)));
    let key = AttestedKey::generate().unwrap();
    let report_data = hex::encode(key.report_data());
    let (status, answer) = lab.post("/GetQuote", &json(&[("report_data", &report_data)])).await;
    assert_eq!((status, answer["report_data"].as_str()), (200, Some(report_data.as_str())), "{answer}");

    let peer = lab.identify(&key, &answer);
    assert_eq!(peer.registers.mrtd, Measurement::of("a program"));
    assert_eq!(peer.app.key_provider.as_ref().unwrap().name, "none");
    assert!(peer.app.ready && peer.app.application_events.is_empty());

    // The description leads from the image's hash to these registers, as with every other machine.
    let vm_config: VmConfig = serde_json::from_str(answer["vm_config"].as_str().unwrap()).unwrap();
    let launch = vm_config.image_measurement().unwrap().launch(vm_config.cpu_count, vm_config.memory_size);
    assert_eq!(launch.mrtd, peer.registers.mrtd);
    assert_eq!(launch.rtmr, [peer.registers.rtmr0, peer.registers.rtmr1, peer.registers.rtmr2]);

    let (_, attested) = lab.post("/Attest", &json(&[("report_data", "0x00ff")])).await;
    let attestation = hex::decode(attested["attestation"].as_str().unwrap()).unwrap();
    let attestation = VersionedAttestation::decode(&attestation).unwrap();
    let log = attestation.event_log().unwrap();
    assert_eq!(log.replay().unwrap().each_ref(), peer.registers.rtmrs());
    assert_eq!(attestation.report_data[..3], [0, 0xFF, 0]);
    assert_eq!(EventLog::parse(answer["event_log"].as_str().unwrap()).unwrap().entries().len(), 11);

    let (_, info) = lab.post("/Info", "").await;
    assert_eq!(info["device_id"], hex::encode(peer.device_id));
    assert_eq!(info["os_image_hash"], vm_config.os_image_hash.to_string());
    assert_eq!(info["app_id"], peer.app.app_id.unwrap().to_string());
}

#[test]
fn one_byte_of_the_executable_makes_another_machine_with_the_same_sealing_keys() {
    let lab = Lab::new();
    let (one, other) = (lab.process(b"a program"), lab.process(b"b program"));
    assert_ne!(one.mr_aggregated(), other.mr_aggregated());
    assert_eq!(one.mr_aggregated(), lab.process(b"a program").mr_aggregated());
    let key = one.sealing_key("kms/state", "sealing").unwrap();
    assert_eq!(key, other.sealing_key("kms/state", "sealing").unwrap());
    // Names are not run together.
    assert_ne!(key, one.sealing_key("kms/stat", "esealing").unwrap());
    assert_ne!(key, Lab::new().process(b"a program").sealing_key("kms/state", "sealing").unwrap());
    assert!(one.sealing_key(&"x".repeat(257), "").is_err());
    assert!(!format!("{one:?}").contains(&hex::encode(key)));
    let secret = lab.dir.path().join("platform/sealing");
    assert_eq!(secret.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(&secret, "00").unwrap();
    assert!(HostProcess::measure(secret.parent().unwrap(), &lab.dir.path().join("executable")).is_err());
}

#[tokio::test]
async fn sealing_keys_come_over_a_socket_of_the_owner_only() {
    let lab = Lab::new();
    let process = lab.process(b"a program");
    let key = hex::encode(process.sealing_key("kms/state", "sealing").unwrap());
    let agent = lab.serve(process, None);
    let call = json(&[("path", "kms/state"), ("purpose", "sealing")]);
    assert_eq!(lab.post("/GetKey", &call).await.1["key"], key);
    let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(lab.socket()), mode(lab.dir.path().join("run"))), (0o600, 0o700));
    drop(agent);

    std::fs::set_permissions(lab.dir.path().join("run"), PermissionsExt::from_mode(0o750)).unwrap();
    let open = HostProcessAgent::serve(&lab.socket(), Arc::new(lab.process(b"")), watch::channel(None).1);
    assert_eq!(open.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn refuses_what_it_cannot_serve() {
    let lab = Lab::new();
    let _agent = lab.serve(lab.process(b"a program"), None);
    let too_long = json(&[("path", &"x".repeat(257))]);
    let huge = json(&[("report_data", &"0".repeat(20_000))]);
    let (long, odd) = (json(&[("report_data", &"00".repeat(65))]), json(&[("report_data", "0")]));
    for (path, body, status) in [
        ("/GetQuote", "", 400),
        ("/GetQuote", "7", 400),
        ("/GetQuote", long.as_str(), 400),
        ("/GetQuote", odd.as_str(), 400),
        ("/GetQuote", huge.as_str(), 400),
        ("/GetKey", too_long.as_str(), 400),
        ("/EmitEvent", "{}", 400),
        // Nobody will give the platform a certificate.
        ("/GetQuote", "{}", 503),
        ("/Attest", "{}", 503),
    ] {
        let (answered, error) = lab.post(path, body).await;
        assert_eq!(answered, status, "{path} {body:.40}: {error}");
        assert!(error["error"].is_string());
    }
    let (status, _) = lab.exchange("GET /GetKey HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert_eq!(status, 400);
}

fn json(members: &[(&str, &str)]) -> String {
    let members = members.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    Value::Object(members.collect()).to_string()
}
