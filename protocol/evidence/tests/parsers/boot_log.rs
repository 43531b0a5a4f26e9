//! Boot logs.

use cloister_evidence::{BootLog, EventLog, InvalidBootLog, RUNTIME_EVENT_TYPE};
use proptest::prelude::*;

use crate::samples;
use crate::support::every_flip_shows;

/// One record with digests of these algorithms.
fn record(register: u32, event_type: u32, digests: &[(u16, Vec<u8>)], data: &[u8]) -> Vec<u8> {
    let mut record = register.to_le_bytes().to_vec();
    record.extend(event_type.to_le_bytes());
    record.extend(u32::try_from(digests.len()).unwrap().to_le_bytes());
    for (algorithm, digest) in digests {
        record.extend(algorithm.to_le_bytes());
        record.extend(digest);
    }
    record.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
    record.extend(data);
    record
}

/// A header as firmware writes it that has SHA-256 too.
fn header(algorithms: &[(u16, u16)]) -> Vec<u8> {
    let mut specification = b"Spec ID Event03\0".to_vec();
    specification.extend([0, 0, 0, 0, 0, 2, 0, 2]);
    specification.extend(u32::try_from(algorithms.len()).unwrap().to_le_bytes());
    for (algorithm, length) in algorithms {
        specification.extend(algorithm.to_le_bytes());
        specification.extend(length.to_le_bytes());
    }
    specification.extend([3, 1, 2, 3]);
    let mut header = [0; 4].to_vec();
    header.extend(3_u32.to_le_bytes());
    header.extend([0; 20]);
    header.extend(u32::try_from(specification.len()).unwrap().to_le_bytes());
    header.extend(specification);
    header
}

fn sha384(byte: u8) -> (u16, Vec<u8>) {
    (0xC, vec![byte; 48])
}

#[test]
fn a_launch_survives_the_binary_form() {
    let bytes = samples::boot_log();
    let log = BootLog::parse(&bytes).unwrap();
    assert_eq!(log.to_event_log().entries(), samples::launch_events());
    // Byte by byte as the specification lays it out.
    insta::assert_snapshot!(hex::encode(&bytes[..32 + 37]));
}

#[test]
fn a_log_of_firmware_is_read_to_its_unused_end() {
    for unused in [0xff, 0] {
        let mut bytes = header(&[(0xB, 32), (0xC, 48)]);
        bytes.extend(record(1, 0x8000_0008, &[(0xB, vec![9; 32]), sha384(1)], b"firmware"));
        bytes.extend(record(0, 4, &[sha384(2)], b"of MRTD"));
        bytes.extend(record(2, 3, &[sha384(0)], b"no action"));
        bytes.extend(record(4, 4, &[sha384(3)], b""));
        bytes.resize(64 << 10, unused);
        let log = BootLog::parse(&bytes).unwrap();
        let events: Vec<_> =
            log.events().iter().map(|event| (event.imr, event.digest.as_bytes()[0])).collect();
        assert_eq!(events, [(0, 1), (3, 3)]);
        assert_eq!(log.events()[0].data, b"firmware");
    }
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let parsed = |algorithms: &[(u16, u16)], records: &[Vec<u8>]| {
        let bytes = [header(algorithms), records.concat()].concat();
        BootLog::parse(&bytes).map(|_| ()).unwrap_err()
    };
    let both = [(0xB, 32), (0xC, 48)];
    let event = |reason| InvalidBootLog::Event { index: 0, reason };
    assert_eq!(parsed(&[(0xB, 32)], &[]), InvalidBootLog::Algorithms);
    assert_eq!(parsed(&[(0xC, 32)], &[]), InvalidBootLog::Algorithms);
    assert_eq!(parsed(&[(0xC, 48), (0xC, 48)], &[]), InvalidBootLog::Algorithms);
    assert_eq!(parsed(&both, &[record(5, 4, &[sha384(1)], b"")]), event("is for a register beyond RTMR 3"));
    assert_eq!(parsed(&both, &[record(1, 4, &[(0xB, vec![1; 32])], b"")]), event("has no SHA-384 digest"));
    assert_eq!(parsed(&both, &[record(1, 4, &[], b"")]), event("has no SHA-384 digest"));
    assert_eq!(
        parsed(&both, &[record(1, 4, &[sha384(1), sha384(2)], b"")]),
        event("has two SHA-384 digests")
    );
    assert_eq!(
        parsed(&both, &[record(1, 4, &[(0xD, vec![1; 64])], b"")]),
        event("has a digest that the header does not name")
    );
    assert_eq!(
        parsed(&both, &[record(4, RUNTIME_EVENT_TYPE, &[sha384(1)], b"")]),
        event("is of the type of runtime events, which only booted software measures")
    );
    let mut cut = record(1, 4, &[sha384(1)], b"data");
    cut.pop();
    assert_eq!(parsed(&both, &[cut]), InvalidBootLog::Truncated);
    let mut no_header = samples::boot_log();
    no_header[32] ^= 1;
    assert_eq!(BootLog::parse(&no_header), Err(InvalidBootLog::Header));
    assert_eq!(BootLog::parse(b""), Err(InvalidBootLog::Truncated));
    let many: Vec<_> = std::iter::repeat_n(record(1, 4, &[sha384(1)], b""), 4097).collect();
    assert_eq!(parsed(&both, &many), InvalidBootLog::TooLong);
}

#[test]
fn what_has_no_place_in_the_form_is_not_written() {
    for (damage, reason) in [
        (
            (|entry| entry.imr = 4) as fn(&mut cloister_evidence::EventLogEntry),
            "is for a register beyond RTMR 3",
        ),
        (|entry| entry.digest.clear(), "has no SHA-384 digest"),
        (|entry| entry.event_payload.push('x'), "has a payload that is not hex"),
        (|entry| entry.event_type = 3, "is of a type that extends nothing"),
        (
            |entry| entry.event_type = RUNTIME_EVENT_TYPE,
            "is of the type of runtime events, which only booted software measures",
        ),
    ] {
        let mut entries = samples::launch_events();
        damage(&mut entries[1]);
        assert_eq!(BootLog::encode(&entries), Err(InvalidBootLog::Event { index: 1, reason }));
    }
}

#[test]
fn damage_shows() {
    let bytes = samples::boot_log();
    let header_end = 32 + 33;
    // The header says nothing about the machine; what follows says nothing else.
    every_flip_shows(&bytes, |damaged| {
        let same_header = damaged[..header_end] == bytes[..header_end];
        same_header.then(|| BootLog::parse(damaged).ok().map(|log| log.to_event_log())).flatten()
    });
    let whole = BootLog::parse(&bytes).unwrap();
    for length in 0..bytes.len() {
        if let Ok(log) = BootLog::parse(&bytes[..length]) {
            // Cut between two events, which only the registers can show.
            assert!(log.events().len() < whole.events().len());
            assert_ne!(log.to_event_log().replay().unwrap(), whole.to_event_log().replay().unwrap());
        }
    }
}

proptest! {
    #[test]
    fn anything_parses_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let _ = BootLog::parse(&bytes);
        let _ = BootLog::parse(&[header(&[(0xC, 48)]), bytes].concat());
    }

    #[test]
    fn any_events_survive_the_binary_form(
        events in proptest::collection::vec(
            (0..4_u32, 0x8000_0000..=u32::MAX, any::<[u8; 32]>(), proptest::collection::vec(any::<u8>(), 0..64)), 0..20),
    ) {
        let entries: Vec<_> = events.into_iter().map(|(imr, event_type, seed, data)| {
            cloister_evidence::EventLogEntry {
                imr,
                event_type,
                digest: cloister_evidence::Measurement::of(seed).to_string(),
                event: String::new(),
                event_payload: hex::encode(data),
                version: None,
                preimage: None,
            }
        }).collect();
        let bytes = BootLog::encode(&entries).unwrap();
        prop_assert_eq!(BootLog::parse(&bytes).unwrap().to_event_log(), EventLog::new(entries));
    }
}
