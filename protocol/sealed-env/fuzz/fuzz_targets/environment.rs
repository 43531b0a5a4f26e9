//! Any bytes: what is read keeps the limits, is written and read again the same, and a selection of it has
//! nothing dangerous.
#![no_main]

use cloister_sealed_env::{Environment, MAX_TOTAL_BYTES, MAX_VARIABLES, is_dangerous};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(environment) = Environment::parse(bytes) else { return };
    assert!(environment.len() <= MAX_VARIABLES);
    assert!(
        environment.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= MAX_TOTAL_BYTES
    );
    assert_eq!(Environment::parse(&environment.to_json()).as_ref(), Ok(&environment));
    let names: Vec<String> = environment.iter().map(|(name, _)| name.to_owned()).collect();
    let selection = environment.select(names.iter().map(String::as_str));
    assert!(selection.kept.iter().all(|(name, _)| !is_dangerous(name)));
    assert!(selection.skipped.iter().all(|skipped| is_dangerous(&skipped.name)));
});
