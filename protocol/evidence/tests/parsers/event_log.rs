//! Event logs.

use cloister_evidence::{
    EventLog, EventLogEntry, InvalidEventLog, MAX_EVENTS, Measurement, Quote, RuntimeEvent, event_name,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::samples;
use crate::support::{published, published_bytes};

fn app_id() -> Vec<u8> {
    hex::decode("6f809b3214eb9a69571ad008289d9551fa9a4272").unwrap()
}

#[test]
fn digests_of_the_first_scheme() {
    for (name, payload, digest) in [
        (
            "system-preparing",
            vec![],
            "f9974020ef507068183313d0ca808e0d1ca9b2d1ad0c61f5784e7157c362c06536f5ddacdad4451693f48fcc72fff624",
        ),
        (
            "app-id",
            app_id(),
            "2e9db2adc7dac642c141be99854407483e10b545271b88bba877212f3f835d6a219b3b1d4120c674787c77d0973f6a10",
        ),
        (
            "boot-mr-done",
            vec![],
            "98bd7e6bd3952720b65027fd494834045d06b4a714bf737a06b874638b3ea00ff402f7f583e3e3b05e921c8570433ac6",
        ),
        (
            "storage-fs",
            b"zfs".to_vec(),
            "ba51104636900268b0e059fa3d266419d079d1e94aea26fb9fcbb8d764bf4c89a67ac271b8a0d1a3989945132a111fc7",
        ),
        (
            "system-ready",
            vec![],
            "1a76b2a80a0be71eae59f80945d876351a7a3fb8e9fd1ff1cede5734aa84ea11fd72b4edfbb6f04e5a85edd114c751bd",
        ),
    ] {
        assert_eq!(RuntimeEvent::new(name, payload).digest().to_string(), digest, "{name}");
    }
}

#[test]
fn digests_of_the_second_scheme() {
    let event = RuntimeEvent::new("app-id", app_id());
    assert_eq!(
        event.preimage(),
        r#"{"name":"app-id","payload":"6f809b3214eb9a69571ad008289d9551fa9a4272","type":134217729}"#
    );
    assert_eq!(
        event.digest_v2().to_string(),
        "6ed5b113a64cb93133e87bf1aeef02e3f6824005d09823d06579e259ac55fbfbc7fe6d3b58448ae9cf456a6186bc8df7"
    );
    // Escapes as RFC 8785 has them.
    let event = RuntimeEvent::new("a\"\\\u{8}\n\u{1f}\u{7f}ä/", []);
    assert_eq!(
        event.preimage(),
        "{\"name\":\"a\\\"\\\\\\b\\n\\u001f\u{7f}ä/\",\"payload\":\"\",\"type\":134217729}"
    );
}

/// The chain of the platform reference: nine events of one machine, in both schemes.
fn worked_chain() -> Vec<RuntimeEvent> {
    let hash = |text: &str| hex::decode(text).unwrap();
    let provider = concat!(
        r#"{"name":"kms","id":"3059301306072a8648ce3d020106082a8648ce3d030107034200046ff03b949241ce1dadd435"#,
        r#"19e6960e0a85b41a69a05c328103aa2bce1594ca163c4f753a55bf01dc53f6c0b0c7eee78b40c6ff7d25a96e2282b989"#,
        r#"cef71c144a"}"#
    );
    vec![
        RuntimeEvent::new(event_name::SYSTEM_PREPARING, []),
        RuntimeEvent::new(event_name::APP_ID, app_id()),
        RuntimeEvent::new(
            event_name::COMPOSE_HASH,
            hash("6f809b3214eb9a69571ad008289d9551fa9a4272ffa8f7ad7440e5177d2fec85"),
        ),
        RuntimeEvent::new(event_name::INSTANCE_ID, hash("836a333a23811140f86b94c3c8a7cb0deef0a6d5")),
        RuntimeEvent::new(event_name::BOOT_MR_DONE, []),
        RuntimeEvent::new(
            event_name::OS_IMAGE_HASH,
            hash("e6f5cfec20c02e7b97baa213d0f718020b55e040172d90ccbcb946d56c8b09db"),
        ),
        RuntimeEvent::new(event_name::KEY_PROVIDER, provider),
        RuntimeEvent::new(event_name::STORAGE_FS, "zfs"),
        RuntimeEvent::new(event_name::SYSTEM_READY, []),
    ]
}

#[test]
fn the_worked_chain_ends_in_the_documented_register() {
    let [.., v1] = EventLog::new(worked_chain().iter().map(RuntimeEvent::entry).collect()).replay().unwrap();
    assert_eq!(
        v1.to_string(),
        "4f203e687859f8c339febb0ae0863059a771d3e51c707f285f7a7a67194ce58cb10b5d7281e332ec0433531d74fab45b"
    );
    let [.., v2] = EventLog::new(worked_chain().iter().map(samples::entry_v2).collect()).replay().unwrap();
    assert_eq!(
        v2.to_string(),
        "bb4c7ae8ebbfd8689de5955699d3a152197ac08635350686438d420dc3103ae195ec147bc261f34e5754b4208bbbdfce"
    );
}

#[test]
fn entries_that_lie_are_refused() {
    let event = RuntimeEvent::new("storage-fs", "zfs");
    let refused = |entry: EventLogEntry| match EventLog::new(vec![entry]).replay() {
        Err(InvalidEventLog::Entry { index: 0, reason }) => reason,
        other => panic!("{other:?}"),
    };
    let v1 = event.entry();
    let v2 = samples::entry_v2(&event);
    let other = "its digest is not that of its name and payload";
    assert_eq!(refused(EventLogEntry { event: "storage-fx".into(), ..v1.clone() }), other);
    assert_eq!(refused(EventLogEntry { event_payload: "7a6674".into(), ..v1.clone() }), other);
    assert_eq!(refused(EventLogEntry { digest: Measurement::ZERO.to_string(), ..v1.clone() }), other);
    assert_eq!(refused(EventLogEntry { digest: v1.digest.clone(), ..v2.clone() }), other);
    assert_eq!(
        refused(EventLogEntry { event_payload: "zfs".into(), ..v1.clone() }),
        "its payload is not hex"
    );
    assert_eq!(refused(EventLogEntry { imr: 4, ..v1.clone() }), "there are registers 0 to 3 only");
    assert_eq!(refused(EventLogEntry { version: Some(3), ..v1.clone() }), "its hashing scheme is unknown");
    assert_eq!(refused(EventLogEntry { preimage: None, ..v2.clone() }), "it lacks the text that was hashed");
    let spaced = hex::encode(event.preimage().replace(':', ": "));
    assert_eq!(
        refused(EventLogEntry { preimage: Some(spaced), ..v2.clone() }),
        "the text that was hashed is not that of its name and payload"
    );
    assert_eq!(
        refused(EventLogEntry { digest: String::new(), event_type: 4, ..v1 }),
        "its digest is not 96 hex digits"
    );
    // What can be computed need not be there.
    let stripped = EventLogEntry { digest: String::new(), ..v2.clone() };
    assert_eq!(EventLog::new(vec![stripped]).replay().unwrap(), EventLog::new(vec![v2]).replay().unwrap());
}

#[test]
fn long_logs_are_refused() {
    let entry = serde_json::to_string(&RuntimeEvent::new("e", []).entry()).unwrap();
    let log = |count| format!("[{}]", vec![entry.as_str(); count].join(","));
    EventLog::parse(&log(MAX_EVENTS)).unwrap();
    assert!(matches!(EventLog::parse(&log(MAX_EVENTS + 1)), Err(InvalidEventLog::TooLong)));
    assert!(matches!(EventLog::parse(&" ".repeat((4 << 20) + 1)), Err(InvalidEventLog::TooLong)));
    assert!(matches!(EventLog::parse("{}"), Err(InvalidEventLog::Json(_))));
}

/// A response of a public guest agent: quote and log.
fn response(file: &str) -> Option<(Vec<u8>, EventLog, Value)> {
    let response: Value = serde_json::from_slice(&published(file)?).unwrap();
    let log = EventLog::parse(response["event_log"].as_str().unwrap()).unwrap();
    Some((hex::decode(response["quote"].as_str().unwrap()).unwrap(), log, response))
}

#[test]
fn published_logs_build_the_registers_of_their_quotes() {
    let mut pairs = Vec::new();
    for file in ["dstack/getquote_v0_5.json", "dstack/getquote_v0_6_stripped.json"] {
        let Some((quote, log, _)) = response(file) else { return };
        pairs.push((quote, log));
    }
    let log = String::from_utf8(published("minted/event_log.json").unwrap()).unwrap();
    pairs.push((published_bytes("minted/quote_v4.bin").unwrap(), EventLog::parse(&log).unwrap()));
    for (quote, log) in pairs {
        let registers = Quote::parse(&quote).unwrap().td_report().unwrap().registers();
        assert_eq!(log.builds(&registers).unwrap(), [true; 4]);
        damaged_logs_do_not_build(&log, &registers);
    }
}

/// No event can be dropped, repeated, swapped with its neighbour of the same register, or changed.
fn damaged_logs_do_not_build(log: &EventLog, registers: &cloister_evidence::Registers) {
    let builds = |entries: Vec<EventLogEntry>| {
        EventLog::new(entries).builds(registers).is_ok_and(|built| built == [true; 4])
    };
    let entries = log.entries();
    for index in 0..entries.len() {
        let mut dropped = entries.to_vec();
        let entry = dropped.remove(index);
        let mut repeated = entries.to_vec();
        repeated.insert(index, entry.clone());
        let mut moved = entries.to_vec();
        moved[index].imr = (entry.imr + 1) % 4;
        assert!(!builds(dropped) && !builds(repeated) && !builds(moved), "event {index}");
        let after = entries.iter().enumerate().skip(index + 1).find(|(_, other)| other.imr == entry.imr);
        if let Some((next, other)) = after
            && *other != entry
        {
            let mut swapped = entries.to_vec();
            swapped.swap(index, next);
            assert!(!builds(swapped), "events {index} and {next}");
        }
    }
}

proptest! {
    #[test]
    fn anything_parses_or_is_refused(text in ".{0,400}") {
        let _ = EventLog::parse(&text);
    }

    #[test]
    fn damaged_text_is_refused_or_means_the_same_registers_or_others(index in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = serde_json::to_vec(&samples::event_log()).unwrap();
        let at = index.index(bytes.len());
        bytes[at] = byte;
        let log = std::str::from_utf8(&bytes).ok().and_then(|text| EventLog::parse(text).ok());
        if let Some(log) = log {
            let _ = log.replay();
        }
    }

    #[test]
    fn any_event_reads_back_and_replays(name in ".{0,20}", payload in proptest::collection::vec(any::<u8>(), 0..64)) {
        let event = RuntimeEvent::new(name, payload);
        for (entry, digest) in [(event.entry(), event.digest()), (samples::entry_v2(&event), event.digest_v2())] {
            let text = serde_json::to_string(&[&entry]).unwrap();
            let [.., rtmr3] = EventLog::parse(&text).unwrap().replay().unwrap();
            prop_assert_eq!(rtmr3, Measurement::ZERO.extended_by(&digest));
        }
        let preimage: Value = serde_json::from_str(&event.preimage()).unwrap();
        prop_assert_eq!(preimage["name"].as_str(), Some(event.name.as_str()));
    }
}
