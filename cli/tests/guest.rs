//! A guest agent and a collateral service that serve minted evidence.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::{AppId, ComposeHash};
use cloister_development_tee::{Platform, PlatformKey, TdReport, Vendor, VendorOptions};
use cloister_evidence::{
    EventLog, EventLogEntry, ImageMeasurement, LaunchMeasurement, Measurement, Registers, RuntimeEvent,
    VmConfig, mr_config_id_v1, report_data,
};
use cloister_ra_tls::{AttestedKey, Evidence, Subject};
use cloister_verifier::Clock;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub(crate) const COMPOSE_FILE: &str = "services:\n  web:\n    image: hello\n";
pub(crate) const COMPOSE: &str = r#"{"docker_compose_file":"services:\n  web:\n    image: hello\n","manifest_version":2,"name":"hello","runner":"docker-compose"}"#;
/// That of the CVM of the scripted API.
pub(crate) const APP_ID: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";

/// A machine that answers for evidence.
pub(crate) struct Guest {
    pub(crate) vendor: Vendor,
    pub(crate) platform: Platform,
    pub(crate) image: ImageMeasurement,
    events: Vec<RuntimeEvent>,
    pub(crate) now: Timestamp,
}

impl Guest {
    pub(crate) fn new() -> Self {
        let now = Clock::system().now();
        let vendor = Vendor::in_memory(VendorOptions::default(), now).unwrap();
        let key = PlatformKey::generate().unwrap();
        let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now).unwrap();
        let app_id: AppId = APP_ID.parse().unwrap();
        Self {
            platform: Platform::new(key, &chain).unwrap(),
            vendor,
            image: ImageMeasurement {
                firmware: Measurement::of("firmware"),
                kernel: Measurement::of("kernel"),
                initrd: Measurement::of("initrd"),
                cmdline: "console=ttyS0".to_owned(),
            },
            events: vec![
                RuntimeEvent::new("system-preparing", []),
                RuntimeEvent::new("app-id", *app_id.as_bytes()),
                RuntimeEvent::new("compose-hash", *ComposeHash::of(COMPOSE.as_bytes()).as_bytes()),
                RuntimeEvent::new("instance-id", [0x1D; 20]),
                RuntimeEvent::new("boot-mr-done", []),
                RuntimeEvent::new("key-provider", *br#"{"name":"none","id":""}"#),
                RuntimeEvent::new("system-ready", []),
            ],
            now,
        }
    }

    fn log(&self, events: usize) -> (Vec<EventLogEntry>, Registers) {
        let launch = self.image.launch(1, 2 << 30);
        let mut entries = launch.events;
        entries.extend(self.events.iter().take(events).map(RuntimeEvent::entry));
        let [rtmr0, rtmr1, rtmr2, rtmr3] = EventLog::new(entries.clone()).replay().unwrap();
        (entries, Registers { mrtd: launch.mrtd, rtmr0, rtmr1, rtmr2, rtmr3 })
    }

    fn quote(&self, events: usize, report_data: [u8; 64]) -> Vec<u8> {
        let mr_config_id = *mr_config_id_v1(&ComposeHash::of(COMPOSE.as_bytes())).as_bytes();
        self.platform.quote(&TdReport::new(self.log(events).1, mr_config_id, report_data)).unwrap()
    }

    pub(crate) fn document(&self, nonce: &[u8]) -> Value {
        let count = self.events.len();
        let data = report_data::padded(nonce).unwrap();
        let measurement = serde_json::to_vec(&self.image).unwrap();
        let checksums = checksums(&measurement);
        let vm_config = VmConfig {
            spec_version: 1,
            os_image_hash: cloister_app_compose::OsImageHash::from_bytes(Sha256::digest(&checksums).into()),
            cpu_count: 1,
            memory_size: 2 << 30,
            image: None,
            launch_measurement: Some(LaunchMeasurement {
                checksum_file: BASE64_STANDARD.encode(checksums),
                measurement: BASE64_STANDARD.encode(measurement),
            }),
        };
        json!({ "quote": hex::encode(self.quote(count, data)), "report_data": hex::encode(data),
            "event_log": serde_json::to_string(&self.log(count).0).unwrap(),
            "vm_config": serde_json::to_string(&vm_config).unwrap(), "app_compose": COMPOSE })
    }

    /// A TLS configuration with a certificate over `events` events; none for a certificate without evidence.
    pub(crate) fn tls(&self, events: Option<usize>) -> rustls::ServerConfig {
        let key = AttestedKey::generate().unwrap();
        let (chain, key) = if let Some(events) = events {
            let evidence = Evidence {
                quote: Some(self.quote(events, key.report_data())),
                event_log: serde_json::to_string(&self.log(events).0).unwrap(),
                attestation: None,
            };
            let hour = SignedDuration::from_hours(1);
            let subject = Subject::new("guest", vec!["guest".to_owned()], self.now - hour, self.now + hour);
            let certificate = key.certificate(&evidence, &subject, None).unwrap();
            (certificate.chain().to_vec(), key.private_key_pem().to_string())
        } else {
            let made = rcgen::generate_simple_self_signed(vec!["ingress".to_owned()]).unwrap();
            (vec![made.cert.der().clone()], made.signing_key.serialize_pem())
        };
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap()
    }

    /// Body, and the issuer chain for the header, of a path of the collateral service.
    fn collateral(&self, path: &str) -> Option<(Vec<u8>, &'static str, String)> {
        let body =
            |body: cloister_development_tee::PccsBody, header| Some((body.body, header, body.issuer_chain));
        let path = path.split('?').next().unwrap();
        match path.rsplit('/').next().unwrap() {
            "pckcrl" => body(self.vendor.pccs_pck_crl(self.now).unwrap(), "SGX-PCK-CRL-Issuer-Chain"),
            "tcb" => body(self.vendor.pccs_tcb("c0de00000000", self.now).unwrap()?, "TCB-Info-Issuer-Chain"),
            "identity" => {
                body(self.vendor.pccs_qe_identity(self.now).unwrap(), "SGX-Enclave-Identity-Issuer-Chain")
            }
            "rootcacrl" => {
                let hex = hex::encode(self.vendor.root_crl(self.now).unwrap());
                Some((hex.into_bytes(), "X-None", String::new()))
            }
            _ => None,
        }
    }

    fn answer(&self, path: &str) -> (u16, Vec<u8>, String) {
        if let Some(nonce) = path.strip_prefix("/attestation?report_data=") {
            let nonce = hex::decode(nonce).unwrap();
            return (200, self.document(&nonce).to_string().into_bytes(), String::new());
        }
        match self.collateral(path) {
            Some((body, name, chain)) => {
                let chain = chain.replace('\n', "%0A").replace(' ', "%20");
                (200, body, format!("{name}: {chain}\r\n"))
            }
            None => (404, b"{\"error\":\"nothing here\"}".to_vec(), String::new()),
        }
    }
}

pub(crate) fn checksums(measurement: &[u8]) -> String {
    format!("{}  measurement.json\n", hex::encode(Sha256::digest(measurement)))
}

/// Serves connections one by one for as long as the test lives.
pub(crate) fn serve(guest: &Arc<Guest>, tls: Option<rustls::ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (guest, tls) = (Arc::clone(guest), tls.map(Arc::new));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let _ = match &tls {
                Some(config) => {
                    let connection = rustls::ServerConnection::new(Arc::clone(config)).unwrap();
                    exchange(rustls::StreamOwned::new(connection, stream), &guest)
                }
                None => exchange(stream, &guest),
            };
        }
    });
    address
}

fn exchange(stream: impl Read + Write, guest: &Guest) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    loop {
        let mut header = String::new();
        if stream.read_line(&mut header)? <= 2 {
            break;
        }
    }
    let (status, body, headers) = guest.answer(line.split(' ').nth(1).unwrap_or_default());
    let stream = stream.get_mut();
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n",
        body.len()
    )?;
    stream.write_all(&body)?;
    stream.flush()
}
