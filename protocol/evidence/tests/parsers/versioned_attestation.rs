//! Versioned attestations.

use cloister_evidence::{
    AppInfo, EventLog, InvalidAttestation, MAX_ATTESTATION_BYTES, NitroDocument, PlatformEvidence, Quote,
    RuntimeEvent, VersionedAttestation,
};
use proptest::prelude::*;

use crate::samples;
use crate::support::{every_flip_shows, every_truncation_fails, published};

#[test]
fn the_encoding_is_the_documented_one() {
    let nitro = VersionedAttestation {
        evidence: PlatformEvidence::NitroEnclave { document: vec![1, 2, 3] },
        runtime_events: vec![RuntimeEvent::new("ab", [9])],
        report_data: [7; 64],
        config: "{}".to_owned(),
    };
    let expected = [
        &[0, 2, 3 << 2, 1, 2, 3][..],             // version, platform, document
        &[1 << 2, 2 << 2, b'a', b'b', 1 << 2, 9], // one event
        &[7; 64],
        &[2 << 2, b'{', b'}'],
    ];
    assert_eq!(nitro.encode().unwrap(), expected.concat());
}

#[test]
fn every_platform_survives_the_encoding() {
    for evidence in [
        samples::attestation().evidence,
        PlatformEvidence::NitroEnclave { document: vec![3; 5000] },
        PlatformEvidence::SevSnp {
            report: samples::snp(3, 0x19),
            certificates: vec![vec![1], vec![]],
            mr_config: "{}".to_owned(),
        },
    ] {
        let attestation = VersionedAttestation { evidence, ..samples::attestation() };
        let bytes = attestation.encode().unwrap();
        assert_eq!(VersionedAttestation::decode(&bytes).unwrap(), attestation);
        every_truncation_fails(&bytes, |bytes| VersionedAttestation::decode(bytes).ok());
        every_flip_shows(&bytes, |bytes| VersionedAttestation::decode(bytes).ok());
        let followed = [bytes, vec![0]].concat();
        assert_eq!(VersionedAttestation::decode(&followed), Err(InvalidAttestation::Malformed));
    }
}

#[test]
fn other_forms_are_named() {
    let refused = |bytes: &[u8]| VersionedAttestation::decode(bytes).unwrap_err();
    assert_eq!(refused(&[]), InvalidAttestation::Empty);
    for first in [0x80, 0x83, 0x8f, 0xde, 0xdf] {
        assert_eq!(refused(&[first, 0]), InvalidAttestation::MessagePack);
    }
    assert_eq!(refused(&[1, 0]), InvalidAttestation::Version(1));
    assert!(matches!(refused(&[0, 1, 0]), InvalidAttestation::Platform(_)));
    assert!(matches!(refused(&[0, 4, 0]), InvalidAttestation::Platform(_)));
    assert_eq!(refused(&[0, 5, 0]), InvalidAttestation::Malformed);
    assert_eq!(refused(&vec![0; MAX_ATTESTATION_BYTES + 1]), InvalidAttestation::TooLong);
}

#[test]
fn long_lists_are_refused_before_they_are_kept() {
    // Two bytes of input for each event.
    let mut bytes = vec![0, 2, 0];
    bytes.extend(((4097_u32 << 2) | 1).to_le_bytes()[..2].iter());
    bytes.extend(vec![0; 2 * 4097 + 65]);
    assert_eq!(VersionedAttestation::decode(&bytes), Err(InvalidAttestation::Malformed));
    let mut attestation = samples::attestation();
    attestation.runtime_events = vec![RuntimeEvent::new("e", []); 4097];
    assert_eq!(attestation.encode(), Err(InvalidAttestation::Event(4096)));
}

#[test]
fn what_version_0_cannot_say_is_not_encoded() {
    let mut attestation = samples::attestation();
    let PlatformEvidence::Tdx { event_log, .. } = &mut attestation.evidence else { panic!() };
    event_log[2] = samples::entry_v2(&RuntimeEvent::new("app-id", [1; 20]));
    assert_eq!(attestation.encode(), Err(InvalidAttestation::Event(2)));
}

#[test]
fn log_and_runtime_events_agree() {
    let with = |keep: fn(u32) -> bool, events: Vec<RuntimeEvent>| {
        let mut attestation = samples::attestation();
        let PlatformEvidence::Tdx { event_log, .. } = &mut attestation.evidence else { panic!() };
        event_log.retain(|entry| keep(entry.imr));
        attestation.runtime_events = events;
        attestation.event_log()
    };
    let whole = EventLog::new(samples::event_log());
    assert_eq!(with(|_| true, samples::runtime_events()).unwrap(), whole);
    assert_eq!(with(|_| true, vec![]).unwrap(), whole);
    assert_eq!(with(|imr| imr < 3, samples::runtime_events()).unwrap(), whole);
    let mut fewer = samples::runtime_events();
    fewer.pop();
    let mut other = samples::runtime_events();
    other[2].payload[0] ^= 1;
    for events in [fewer, other] {
        assert_eq!(with(|_| true, events), Err(InvalidAttestation::Contradiction));
    }
}

#[test]
fn published_attestations_survive_the_encoding() {
    let hex_of = |file: &str| {
        let request: serde_json::Value = serde_json::from_slice(&published(file)?).unwrap();
        Some(hex::decode(request["attestation"].as_str().unwrap()).unwrap())
    };
    let Some(request) = hex_of("dstack/verify_request_attestation.json") else { return };
    let file = |file: &str| published(file).unwrap();
    for bytes in [
        request,
        file("dstack/simulator_attestation_v0.scale.bin"),
        file("minted/ratls_attestation_v0.scale.bin"),
        file("nitro/versioned_a.scale.bin"),
        file("nitro/versioned_b.scale.bin"),
        file("nitro/versioned_debug.scale.bin"),
    ] {
        let attestation = VersionedAttestation::decode(&bytes).unwrap();
        assert_eq!(attestation.encode().unwrap(), bytes);
        let log = attestation.event_log().unwrap();
        match &attestation.evidence {
            PlatformEvidence::Tdx { quote, .. } => {
                let quote = Quote::parse(quote).unwrap();
                assert_eq!(quote.report_data(), &attestation.report_data);
                let [_, _, _, rtmr3] = log.builds(&quote.td_report().unwrap().registers()).unwrap();
                assert!(rtmr3);
                assert!(AppInfo::from_event_log(&log).unwrap().compose_hash.is_some());
            }
            PlatformEvidence::NitroEnclave { document } => {
                let document = NitroDocument::parse(document).unwrap();
                assert_eq!(document.user_data.as_deref(), Some(attestation.report_data.as_slice()));
            }
            PlatformEvidence::SevSnp { .. } => panic!("no sample is of this platform"),
        }
    }
    let simulator = VersionedAttestation::decode(&file("dstack/simulator_attestation_v0.scale.bin")).unwrap();
    let PlatformEvidence::Tdx { quote, event_log } = &simulator.evidence else { panic!() };
    assert_eq!(*quote, file("dstack/simulator_quote.bin"));
    assert_eq!((event_log.len(), simulator.runtime_events.len()), (33, 9));
}

proptest! {
    #[test]
    fn anything_decodes_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2048), platform in 0..4_u8) {
        let bytes = [vec![0, platform], bytes].concat();
        if let Ok(attestation) = VersionedAttestation::decode(&bytes) {
            prop_assert_eq!(attestation.encode().unwrap(), bytes);
        }
    }
}
