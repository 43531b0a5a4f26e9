//! Any bytes: a quote is refused or each of its parts lies in it, and its certificates are read or refused.
#![no_main]

use cloister_evidence::Quote;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(quote) = Quote::parse(bytes) else { return };
    assert!(bytes.starts_with(quote.bytes()));
    assert!(quote.bytes().starts_with(quote.signed()));
    assert_eq!(Quote::parse(quote.bytes()).as_ref().map(Quote::signed), Ok(quote.signed()));
    drop(quote.certification.pck_certificate());
});
