//! The key that signs receipts.

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use ed25519_dalek::{Signature, SignatureError, Signer};

use super::keys::KeysError;

/// An Ed25519 key (RFC 8032). Every answer has its signature, which is most of what a receipt costs: AWS-LC makes it in
/// some three fifths of the time that others take.
pub(super) struct ReceiptKey {
    pair: Ed25519KeyPair,
    /// What a library without memory does.
    #[cfg(test)]
    pub(super) fails: std::sync::atomic::AtomicBool,
}

impl ReceiptKey {
    pub(super) fn new(secret: &[u8; 32]) -> Result<Self, KeysError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(secret).map_err(|_| KeysError::Signing)?;
        Ok(Self {
            pair,
            #[cfg(test)]
            fails: std::sync::atomic::AtomicBool::default(),
        })
    }

    /// 32 bytes.
    pub(super) fn public_key(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }
}

impl fmt::Debug for ReceiptKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ReceiptKey")
    }
}

impl Signer<Signature> for ReceiptKey {
    fn try_sign(&self, message: &[u8]) -> Result<Signature, SignatureError> {
        #[cfg(test)]
        if self.fails.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(SignatureError::new());
        }
        // By reference: it has room for signatures of other algorithms, kilobytes.
        let signed = &self.pair.try_sign(message);
        let signature = signed.as_ref().map_err(|_| SignatureError::new())?;
        Signature::from_slice(signature.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // The algorithm leaves no choice: what others sign with the same key is the same.
        #[test]
        fn signatures_are_those_of_the_algorithm(secret: [u8; 32], message: Vec<u8>) {
            let (key, other) = (ReceiptKey::new(&secret).unwrap(), SigningKey::from_bytes(&secret));
            prop_assert_eq!(key.public_key(), other.verifying_key().to_bytes());
            prop_assert_eq!(key.sign(&message), other.sign(&message));
        }
    }
}
