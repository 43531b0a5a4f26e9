//! Samples of each format, made by hand here and nowhere else.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ciborium::Value;
use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use cloister_evidence::{
    BootLog, EventLogEntry, ImageMeasurement, LaunchMeasurement, Measurement, MrConfig, PlatformEvidence,
    RuntimeEvent, VersionedAttestation, VmConfig, event_name,
};
use coset::TaggedCborSerializable as _;
use sha2::{Digest as _, Sha256};

/// A certificate like that of a platform, self-signed: extension 1.2.840.113741.1.13.1 with PPID 00112233…,
/// FMSPC c0ffee000000, components 1 to 16, PCESVN 300.
pub(crate) const PCK_CERTIFICATE: &str = include_str!("pck.pem");

/// Bytes that count, so that no two fields are the same.
fn counting(length: usize, start: u8) -> Vec<u8> {
    (0..length)
        .scan(start, |next, _| Some(std::mem::replace(next, next.wrapping_mul(5).wrapping_add(3))))
        .collect()
}

/// A quote of a version and, for version 5, body type. Nothing in it is signed.
pub(crate) fn quote(version: u16, tee_type: u32, body_type: Option<u16>) -> Vec<u8> {
    let length = match (tee_type, body_type) {
        (0, _) => 384,
        (_, None | Some(2)) => 584,
        (_, Some(3)) => 648,
        _ => 885,
    };
    let mut quote = version.to_le_bytes().to_vec();
    quote.extend(2_u16.to_le_bytes());
    quote.extend(tee_type.to_le_bytes());
    quote.extend(counting(40, 7));
    if let Some(body_type) = body_type {
        quote.extend(body_type.to_le_bytes());
        quote.extend(u32::try_from(length).unwrap().to_le_bytes());
    }
    quote.extend(counting(length, 11));
    let mut qe = counting(384 + 64, 23);
    qe.extend(32_u16.to_le_bytes());
    qe.extend(counting(32, 29));
    qe.extend(5_u16.to_le_bytes());
    qe.extend(u32::try_from(PCK_CERTIFICATE.len() + 1).unwrap().to_le_bytes());
    qe.extend(PCK_CERTIFICATE.as_bytes());
    qe.push(0);
    let mut auth = counting(128, 17);
    if version > 3 {
        auth.extend(6_u16.to_le_bytes());
        auth.extend(u32::try_from(qe.len()).unwrap().to_le_bytes());
    }
    auth.extend(qe);
    quote.extend(u32::try_from(auth.len()).unwrap().to_le_bytes());
    quote.extend(auth);
    quote
}

/// The events that a launch measures.
pub(crate) fn launch_events() -> Vec<EventLogEntry> {
    let image = ImageMeasurement {
        firmware: Measurement::of("firmware"),
        kernel: Measurement::of("kernel"),
        initrd: Measurement::of("initrd"),
        cmdline: "console=ttyS0 root=/dev/vda".to_owned(),
    };
    image.launch(2, 1 << 30).events
}

pub(crate) fn boot_log() -> Vec<u8> {
    BootLog::encode(&launch_events()).unwrap()
}

/// What a machine's platform measures, up to `system-ready`.
pub(crate) fn runtime_events() -> Vec<RuntimeEvent> {
    vec![
        RuntimeEvent::new(event_name::SYSTEM_PREPARING, []),
        RuntimeEvent::new(event_name::APP_ID, [0xa1; 20]),
        RuntimeEvent::new(event_name::COMPOSE_HASH, [0xc0; 32]),
        RuntimeEvent::new(event_name::INSTANCE_ID, [0x1d; 20]),
        RuntimeEvent::new(event_name::BOOT_MR_DONE, []),
        RuntimeEvent::new(event_name::OS_IMAGE_HASH, [0x05; 32]),
        RuntimeEvent::new(event_name::KEY_PROVIDER, *br#"{"name":"none","id":""}"#),
        RuntimeEvent::new(event_name::STORAGE_FS, *b"ext4"),
        RuntimeEvent::new(event_name::SYSTEM_READY, []),
    ]
}

/// An entry of the second hashing scheme.
pub(crate) fn entry_v2(event: &RuntimeEvent) -> EventLogEntry {
    EventLogEntry {
        digest: event.digest_v2().to_string(),
        version: Some(2),
        preimage: Some(hex::encode(event.preimage())),
        ..event.entry()
    }
}

pub(crate) fn event_log() -> Vec<EventLogEntry> {
    let mut entries = launch_events();
    entries.extend(runtime_events().iter().map(RuntimeEvent::entry));
    entries
}

/// Members of a Nitro document's payload.
pub(crate) fn nitro_members() -> Vec<(&'static str, Value)> {
    let pcrs = [0_u8, 1, 2, 4].map(|index| (Value::from(index), Value::Bytes(vec![index + 1; 48])));
    vec![
        ("module_id", Value::from("i-0123456789abcdef0-enc0123456789abcdef")),
        ("digest", Value::from("SHA384")),
        ("timestamp", Value::from(1_790_000_000_000_u64)),
        ("pcrs", Value::Map(pcrs.to_vec())),
        ("certificate", Value::Bytes(vec![0x30; 40])),
        ("cabundle", Value::Array(vec![Value::Bytes(vec![0x31; 40]), Value::Bytes(vec![0x32; 40])])),
        ("public_key", Value::Null),
        ("user_data", Value::Bytes(vec![0x64; 64])),
        ("nonce", Value::Bytes(vec![0x6e; 32])),
    ]
}

/// A Nitro document with this payload, tagged. Its signature is made up.
pub(crate) fn nitro(members: Vec<(&str, Value)>) -> Vec<u8> {
    let members = members.into_iter().map(|(name, value)| (Value::from(name), value)).collect();
    let mut payload = Vec::new();
    ciborium::into_writer(&Value::Map(members), &mut payload).unwrap();
    let headers = coset::HeaderBuilder::new().algorithm(coset::iana::Algorithm::ES384).build();
    coset::CoseSign1Builder::new()
        .protected(headers)
        .payload(payload)
        .signature(counting(96, 3))
        .build()
        .to_tagged_vec()
        .unwrap()
}

/// An SNP report of a version, on a CPU of a family. Nothing in it is signed.
pub(crate) fn snp(version: u32, family: u8) -> Vec<u8> {
    let mut report = counting(0x2A0, 41);
    report[..4].copy_from_slice(&version.to_le_bytes());
    report[0x34..0x38].copy_from_slice(&1_u32.to_le_bytes());
    report[0x188] = family;
    for _ in 0..2 {
        report.extend(counting(48, 5));
        report.extend([0; 24]);
    }
    report.resize(1184, 0);
    report
}

pub(crate) fn attestation() -> VersionedAttestation {
    VersionedAttestation {
        evidence: PlatformEvidence::Tdx { quote: quote(4, 0x81, None), event_log: event_log() },
        runtime_events: runtime_events(),
        report_data: [0x5a; 64],
        config: r#"{"cpu_count":2}"#.to_owned(),
    }
}

/// The description of a machine, with the documents of its image.
pub(crate) fn vm_config() -> VmConfig {
    let measurement = serde_json::to_vec(&ImageMeasurement {
        firmware: Measurement::of("firmware"),
        kernel: Measurement::of("kernel"),
        initrd: Measurement::of("initrd"),
        cmdline: "console=ttyS0".to_owned(),
    })
    .unwrap();
    let listed = hex::encode(Sha256::digest(&measurement));
    let checksum_file = format!("{}  kernel\n{listed}  measurement.json\n", "ab".repeat(32));
    VmConfig {
        spec_version: 1,
        os_image_hash: OsImageHash::from_bytes(Sha256::digest(&checksum_file).into()),
        cpu_count: 2,
        memory_size: 2 << 30,
        image: None,
        launch_measurement: Some(LaunchMeasurement {
            checksum_file: BASE64_STANDARD.encode(checksum_file),
            measurement: BASE64_STANDARD.encode(measurement),
        }),
    }
}

/// The document of an MRCONFIGID of version 3.
pub(crate) fn mr_config() -> String {
    MrConfig {
        app_id: Some(AppId::from_bytes([0xa5; 20])),
        compose_hash: ComposeHash::from_bytes([0xc5; 32]),
        gpu_policy_hash: None,
        init_script_hashes: Some(vec!["00".repeat(32)]),
        instance_id: None,
        key_provider: "kms".to_owned(),
        key_provider_id: Some("3059".to_owned()),
        version: 3,
    }
    .to_json()
}
