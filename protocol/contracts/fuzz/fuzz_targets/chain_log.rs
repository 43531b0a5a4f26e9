//! Any log: it is refused, or writing the event again gives the same log.
#![no_main]

use cloister_contracts::events::{Event, Log, decode_event};
use cloister_contracts::{Address, B256, IntoLogData as _};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [count, rest @ ..] = bytes else { return };
    let Some((topics, data)) = rest.split_at_checked(usize::from(count % 6) * 32) else { return };
    let topics: Vec<B256> = topics.chunks_exact(32).map(B256::from_slice).collect();
    let Ok(event) = decode_event(Log { address: Address::ZERO, topics: &topics, data }) else { return };
    let written = match event {
        Event::App(event) => event.to_log_data(),
        Event::Kms(event) => event.to_log_data(),
        Event::Owned(event) => event.to_log_data(),
    };
    assert_eq!((written.topics(), written.data.as_ref()), (topics.as_slice(), data));
});
