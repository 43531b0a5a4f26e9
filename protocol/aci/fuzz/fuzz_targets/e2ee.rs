//! Any text as an encrypted value, a key or a nonce: nothing opens that was not sealed.
#![no_main]

use cloister_aci::e2ee::{self, Context, Purpose, SecretKey, Suite};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    drop(text.parse::<cloister_aci::report::Nonce>());
    for suite in [Suite::X25519, Suite::Secp256k1] {
        let secret = SecretKey::new(suite, &[3; 32]).expect("a scalar");
        let context = Context {
            algo: suite.algo(),
            field: "messages.0.content",
            id: None,
            model: "m",
            nonce: "0",
            purpose: Purpose::Request,
            ts: 0,
        };
        assert!(e2ee::open(&secret, &context, text).is_err());
        if let Ok(key) = e2ee::public_key(suite, text) {
            assert_eq!(key.len(), suite.public_key_len());
        }
    }
});
