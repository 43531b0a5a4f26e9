//! A node that plays the hardware with fixed registers and signs nothing, for tests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::{AppCompose, ComposeHash, KeyProvider};
use cloister_attester::Attester;
use cloister_evidence::{BootLog, EventLogEntry, Measurement, Registers, mr_config_id_v1};
use cloister_guest_channel::NodeToken;
use cloister_guest_channel::config_disk::SysConfig;
use cloister_guest_channel::tee::{Call, Outcome, Request, Response};

use super::{Attestation, AttestationError, Facts, KeyProviderInfo, Keys, Making, Measuring};

pub(crate) const APP_COMPOSE: &str = r#"{"manifest_version":2,"name":"grüße","runner":"docker-compose","docker_compose_file":"services: {}\n","public_tcbinfo":true}"#;
/// The same application with keys.
pub(crate) const APP_COMPOSE_OF_KMS: &str = r#"{"manifest_version":2,"name":"grüße","runner":"docker-compose","docker_compose_file":"services: {}\n","kms_enabled":true}"#;
pub(crate) const VM_CONFIG: &str = r#"{"spec_version":1,"os_image_hash":"e6f5cfecbd9d3a2bc85dfd4de3b3b0ad9c8c2cc1f2a4cbbd0b6b3e0ddc6c09db","cpu_count":1,"memory_size":1073741824}"#;

/// The one boot event of these machines.
fn boot_event() -> EventLogEntry {
    EventLogEntry {
        imr: 0,
        event_type: 0x0A,
        digest: Measurement::of("shape").to_string(),
        event: String::new(),
        event_payload: hex::encode("shape"),
        version: None,
        preimage: None,
    }
}

/// A quote in TDX layout, version 4, without any signature that would verify.
fn quote(config_id: Measurement, rtmr3: Measurement, report_data: &[u8]) -> Vec<u8> {
    let mut quote = vec![4, 0, 2, 0, 0x81, 0, 0, 0, 0, 0, 0, 0];
    quote.extend(hex::decode("939a7233f79c4ca9940a0db3957f0607").unwrap());
    quote.extend([0; 20]);
    let mut body = vec![0; 136];
    body.extend(Measurement::of("firmware").as_bytes());
    body.extend(config_id.as_bytes());
    body.extend([0; 96]);
    let Registers { rtmr0, rtmr1, rtmr2, rtmr3, .. } = registers(rtmr3);
    for register in [rtmr0, rtmr1, rtmr2, rtmr3] {
        body.extend(register.as_bytes());
    }
    body.extend(report_data);
    assert_eq!(body.len(), 584);
    quote.extend(body);
    // QE report, its signature, no authentication data, a certification of kind 5 without contents.
    let mut certification = vec![0; 384 + 64];
    certification.extend([0, 0, 5, 0, 0, 0, 0, 0]);
    let mut auth_data = vec![0; 128];
    auth_data.extend([6, 0]);
    auth_data.extend(u32::try_from(certification.len()).unwrap().to_le_bytes());
    auth_data.extend(certification);
    quote.extend(u32::try_from(auth_data.len()).unwrap().to_le_bytes());
    quote.extend(auth_data);
    quote
}

/// Makes a quote with RTMR 3 over report data.
type Quoting = Box<dyn Fn(Measurement, &[u8]) -> Vec<u8> + Send>;

/// Registers of these machines but RTMR 3.
pub(crate) fn registers(rtmr3: Measurement) -> Registers {
    let rtmr0 = Measurement::ZERO.extended_by(&Measurement::of("shape"));
    let (rtmr1, rtmr2) = (Measurement::ZERO, Measurement::ZERO);
    Registers { mrtd: Measurement::of("firmware"), rtmr0, rtmr1, rtmr2, rtmr3 }
}

/// Plays the node. Of the quotes behind the one that a boot begins with, the first `refused` fail.
fn serve(node: UnixStream, quoting: &Quoting, refused: usize) {
    let mut rtmr3 = Measurement::ZERO;
    let mut quotes = 0;
    let mut out = node.try_clone().unwrap();
    for line in BufReader::new(node).lines() {
        let Ok(Request { id, call }) = serde_json::from_str(&line.unwrap()) else { continue };
        let outcome = match call {
            Call::BootLog => {
                Outcome::BootLog { log: BASE64_STANDARD.encode(BootLog::encode(&[boot_event()]).unwrap()) }
            }
            Call::Extend { digest, .. } => {
                rtmr3 = rtmr3.extended_by(&digest.parse().unwrap());
                Outcome::Extended
            }
            Call::Quote { report_data } => {
                quotes += 1;
                if (2..2 + refused).contains(&quotes) {
                    Outcome::Refused { reason: "not now".to_owned() }
                } else {
                    let quote = quoting(rtmr3, &hex::decode(report_data).unwrap());
                    Outcome::Quote { quote: hex::encode(quote) }
                }
            }
        };
        let mut line = serde_json::to_vec(&Response { id, outcome }).unwrap();
        line.push(b'\n');
        if out.write_all(&line).is_err() {
            return;
        }
    }
}

/// An attester on a node that plays the hardware.
pub(crate) fn attester(config_id: Measurement) -> Attester {
    attester_refused(config_id, 0)
}

/// The same on a node that refuses `refused` quotes, all but the first.
fn attester_refused(config_id: Measurement, refused: usize) -> Attester {
    let quoting = Box::new(move |rtmr3, report_data: &[u8]| quote(config_id, rtmr3, report_data));
    attester_with(quoting, refused)
}

/// An attester whose quotes somebody else makes.
pub(crate) fn attester_with(quoting: Quoting, refused: usize) -> Attester {
    let (guest, node) = UnixStream::pair().unwrap();
    thread::spawn(move || serve(node, &quoting, refused));
    Attester::over_development_channel(guest.try_clone().unwrap(), guest).unwrap()
}

/// Boots a CVM whose node was told to launch it for `config_id`.
pub(crate) async fn boot(
    app_compose: &str,
    config_id: Measurement,
) -> Result<Arc<Attestation>, AttestationError> {
    boot_on(app_compose, attester(config_id), None).await
}

/// A boot that has come as far as a KMS wants to see.
pub(crate) async fn booting(
    app_compose: &str,
    attester: Attester,
) -> Result<(Measuring, Facts), AttestationError> {
    let app = AppCompose::parse(app_compose.as_bytes()).unwrap();
    let system = SysConfig {
        kms_urls: Vec::new(),
        vm_uuid: uuid::Uuid::nil(),
        app_id: "6f809b3214eb9a69571ad008289d9551fa9a4272".parse().unwrap(),
        hostname: "hello".to_owned(),
        image_mirror: true,
        launched_at_ms: 1,
        node_token: NodeToken::from_bytes([1; 32]),
        vm_config: VM_CONFIG.to_owned(),
    };
    let mut facts = Facts::new(&app, &system, KeyProvider::of(&app).unwrap());
    let measuring = Measuring::begin(attester, &facts).await?;
    facts.instance = Some("836a333a23811140f86b94c3c8a7cb0deef0a6d5".parse().unwrap());
    measuring.instance(facts.instance.as_ref()).await?;
    Ok((measuring, facts))
}

/// Boots a CVM to which a KMS gave `keys`.
pub(crate) async fn boot_on(
    app_compose: &str,
    attester: Attester,
    keys: Option<Keys>,
) -> Result<Arc<Attestation>, AttestationError> {
    let (measuring, facts) = booting(app_compose, attester).await?;
    let provider = keys.as_ref().map_or_else(KeyProviderInfo::none, |keys| keys.provider.clone());
    measuring.keys(&provider, keys.as_ref().map(|_| [0xE6; 32].as_slice())).await?;
    measuring.finish(facts, keys).await
}

/// A CVM that was launched for what it runs and got keys.
pub(crate) async fn booted_with(keys: Keys) -> Arc<Attestation> {
    let config_id = mr_config_id_v1(&ComposeHash::of(APP_COMPOSE_OF_KMS.as_bytes()));
    boot_on(APP_COMPOSE_OF_KMS, attester(config_id), Some(keys)).await.unwrap()
}

/// A CVM that was launched for what it runs.
pub(crate) async fn booted() -> Arc<Attestation> {
    boot(APP_COMPOSE, mr_config_id_v1(&ComposeHash::of(APP_COMPOSE.as_bytes()))).await.unwrap()
}

mod tests {
    use cloister_evidence::{AppInfo, EventLog, PlatformEvidence, Quote, VersionedAttestation};
    use cloister_ra_tls::AttestedCertificate;

    use super::*;

    #[tokio::test]
    async fn a_boot_for_another_application_is_refused() {
        let other = mr_config_id_v1(&ComposeHash::of(b"another document"));
        let refused = boot(APP_COMPOSE, other).await.unwrap_err();
        assert!(matches!(refused, AttestationError::OtherApplication(_)), "{refused}");
        // Nothing was said at the launch.
        boot(APP_COMPOSE, Measurement::ZERO).await.unwrap();
    }

    fn launched_for(app_compose: &str) -> Measurement {
        mr_config_id_v1(&ComposeHash::of(app_compose.as_bytes()))
    }

    #[tokio::test]
    async fn certificates_that_cannot_be_made_are_made_later() {
        let attestation =
            boot_on(APP_COMPOSE, attester_refused(launched_for(APP_COMPOSE), 1), None).await.unwrap();
        let mut first = attestation.certificates.clone();
        first.wait_for(|making| matches!(making, Making::Failed)).await.unwrap();
        // Nobody who asks waits for the next attempt.
        let document = attestation.document(&[7; 64]).await.unwrap();
        assert_eq!(document.app_cert, None);
        assert_eq!(attestation.info(false).await["app_cert"], "");
        let mut made = attestation.certificates.clone();
        let made = made.wait_for(|making| matches!(making, Making::Made(_)));
        tokio::time::timeout(Duration::from_secs(20), made).await.unwrap().unwrap();
        assert!(attestation.document(&[7; 64]).await.unwrap().app_cert.is_some());
    }

    #[tokio::test]
    async fn a_gateway_that_no_certificate_can_name_is_left_out() {
        let app_compose =
            APP_COMPOSE.replace("\"runner\"", "\"default_gateway_domain\":\"grüße.example\",\"runner\"");
        let attestation = boot(&app_compose, launched_for(&app_compose)).await.unwrap();
        assert!(attestation.document(&[7; 64]).await.unwrap().app_cert.is_some());
    }

    #[tokio::test]
    async fn the_document_proves_itself() {
        let attestation = booted().await;
        let document = attestation.document(&[7; 64]).await.unwrap();
        let quote = hex::decode(document.quote.unwrap()).unwrap();
        let quote = Quote::parse(&quote).unwrap();
        let log = EventLog::parse(&document.event_log).unwrap();
        assert_eq!(quote.report_data(), &[7; 64]);
        assert_eq!(log.builds(&quote.td_report().unwrap().registers()).unwrap(), [true; 4]);
        let info = AppInfo::from_event_log(&log).unwrap();
        assert_eq!(info.compose_hash, Some(ComposeHash::of(APP_COMPOSE.as_bytes())));
        assert_eq!(document.app_compose.as_deref(), Some(APP_COMPOSE));
        let versioned = hex::decode(document.attestation.unwrap()).unwrap();
        let versioned = VersionedAttestation::decode(&versioned).unwrap();
        assert_eq!((versioned.report_data, versioned.config.as_str()), ([7; 64], VM_CONFIG));
        assert!(matches!(versioned.evidence, PlatformEvidence::Tdx { .. }));
        let chain = AttestedCertificate::from_pem_chain(&document.app_cert.unwrap()).unwrap();
        assert_eq!(chain.chain().len(), 2);
    }
}
