//! Named events.

use cloister_evidence::{AppInfo, EventLog, InvalidAppInfo, RUNTIME_EVENT_TYPE, RuntimeEvent, event_name};

use crate::samples;
use crate::support::published;

fn read(events: &[RuntimeEvent]) -> Result<AppInfo, InvalidAppInfo> {
    AppInfo::from_event_log(&EventLog::new(events.iter().map(RuntimeEvent::entry).collect()))
}

#[test]
fn the_platforms_events_describe_the_application() {
    let log = EventLog::new(samples::event_log());
    insta::assert_debug_snapshot!(AppInfo::from_event_log(&log).unwrap());
}

#[test]
fn behind_system_ready_everything_is_the_applications_word() {
    let mut events = samples::runtime_events();
    let own = [
        RuntimeEvent::new(event_name::APP_ID, [0xee; 20]),
        RuntimeEvent::new(event_name::SYSTEM_READY, *b"again"),
        RuntimeEvent::new(event_name::MR_KMS, *b"not a hash"),
        RuntimeEvent::new("with:colon", []),
    ];
    events.extend(own.clone());
    let info = read(&events).unwrap();
    assert_eq!(info.app_id.unwrap().as_bytes(), &[0xa1; 20]);
    assert_eq!(info.mr_kms, None);
    assert_eq!(info.application_events, own);
}

#[test]
fn a_machine_that_boots_is_not_ready() {
    let info = read(&samples::runtime_events()[..5]).unwrap();
    assert!(!info.ready && info.app_id.is_some() && info.key_provider.is_none());
    assert_eq!(AppInfo::from_event_log(&EventLog::default()).unwrap(), AppInfo::default());
}

#[test]
fn a_trusted_name_counts_once() {
    for index in 0..8 {
        let mut events = samples::runtime_events();
        let name = events[index].name.clone();
        events.insert(index + 1, events[index].clone());
        assert_eq!(
            read(&events).unwrap_err().to_string(),
            format!("the event {name} occurs twice before the system was ready")
        );
    }
    let mut scripts = samples::runtime_events();
    for number in [1, 2] {
        scripts.insert(3, RuntimeEvent::new(event_name::INIT_SCRIPT_HASH, [number; 32]));
    }
    assert_eq!(read(&scripts).unwrap().init_script_hashes, [[2; 32], [1; 32]]);
}

#[test]
fn no_event_can_be_hidden() {
    // Shown as an event of the firmware, system-ready would no longer end what is trusted.
    for index in 0..9 {
        let mut entries: Vec<_> = samples::runtime_events().iter().map(RuntimeEvent::entry).collect();
        entries[index].event_type = 6;
        let log = EventLog::new(entries);
        log.replay().expect("the registers cannot show it");
        assert_eq!(AppInfo::from_event_log(&log), Err(InvalidAppInfo::Nameless { index }));
    }
    // Cut at another colon, the key provider would become an unknown event with the same digest.
    let mut events = samples::runtime_events();
    let honest = events[6].clone();
    events[6] = RuntimeEvent::new(r#"key-provider:{"name""#, *br#""none","id":""}"#);
    assert_eq!(events[6].digest(), honest.digest());
    assert_eq!(read(&events), Err(InvalidAppInfo::Colon { index: 6 }));
}

#[test]
fn malformed_payloads_are_refused() {
    for (index, payload) in [
        (0, b"x".to_vec()),
        (1, vec![1; 19]),
        (2, vec![1; 33]),
        (3, vec![1]),
        (4, vec![0]),
        (5, vec![]),
        (6, b"{}".to_vec()),
        (7, vec![0xff]),
        (8, b"no".to_vec()),
    ] {
        let mut events = samples::runtime_events();
        events[index].payload = payload;
        let InvalidAppInfo::Payload(name) = read(&events).unwrap_err() else { panic!("{index}") };
        assert_eq!(name, events[index].name);
    }
    let mut none = samples::runtime_events();
    none[3].payload.clear();
    assert_eq!(read(&none).unwrap().instance_id, None);
}

#[test]
fn only_rtmr_3_counts() {
    let mut entries: Vec<_> = samples::runtime_events().iter().map(RuntimeEvent::entry).collect();
    let mut other = RuntimeEvent::new(event_name::MR_KMS, [7; 32]).entry();
    other.imr = 2;
    entries.insert(0, other);
    assert_eq!(entries[0].event_type, RUNTIME_EVENT_TYPE);
    assert_eq!(AppInfo::from_event_log(&EventLog::new(entries)).unwrap().mr_kms, None);
}

#[test]
fn published_logs_describe_their_applications() {
    let info = |file: &str| {
        let response: serde_json::Value = serde_json::from_slice(&published(file)?).unwrap();
        let log = EventLog::parse(response["event_log"].as_str().unwrap()).unwrap();
        Some(AppInfo::from_event_log(&log).unwrap())
    };
    let Some(v0_5) = info("dstack/getquote_v0_5.json") else { return };
    assert_eq!(v0_5.key_provider.unwrap().name, "local-sgx");
    assert_eq!(v0_5.application_events.len(), 1);
    assert_eq!(v0_5.application_events[0].name, "LIUM_MINER_HOTKEY");
    let v0_6 = info("dstack/getquote_v0_6_stripped.json").unwrap();
    assert_eq!(v0_6.key_provider.unwrap().name, "kms");
    assert_eq!(v0_6.storage_fs.as_deref(), Some("zfs"));
    assert_eq!(v0_6.compose_hash.unwrap().as_bytes()[..20], *v0_6.app_id.unwrap().as_bytes());
    assert!(v0_6.ready && v0_6.application_events.is_empty());
}
