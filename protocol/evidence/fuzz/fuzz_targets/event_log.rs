//! Any bytes: an event log that replays says the same after it was written and read again.
#![no_main]

use cloister_evidence::{AppInfo, EventLog};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(log) =
        std::str::from_utf8(bytes).map_err(drop).and_then(|text| EventLog::parse(text).map_err(drop))
    else {
        return;
    };
    let info = AppInfo::from_event_log(&log);
    if let Ok(info) = &info {
        assert!(info.ready || info.application_events.is_empty());
    }
    let text = serde_json::to_string(&log).expect("a log is JSON");
    let again = EventLog::parse(&text).expect("what was written can be read");
    assert_eq!(again.replay().ok(), log.replay().ok());
    assert_eq!(AppInfo::from_event_log(&again), info);
    drop(log.rtmr3_at_boot());
});
