//! Any bytes: a boot log that parses can be written, and parses to the same events again.
#![no_main]

use cloister_evidence::BootLog;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(log) = BootLog::parse(bytes) else { return };
    let entries = log.to_event_log();
    let Ok(written) = BootLog::encode(entries.entries()) else { return };
    assert_eq!(BootLog::parse(&written).as_ref(), Ok(&log));
    entries.replay().expect("every event has a digest and a register");
});
