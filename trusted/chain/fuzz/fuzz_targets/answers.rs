//! What an endpoint may send: nothing of it makes the reader panic or grow.
#![no_main]

use cloister_chain::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzzing::answers(body);
});
