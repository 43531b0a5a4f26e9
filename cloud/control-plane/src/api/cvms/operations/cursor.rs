//! Opaque texts that name the last operation of a page, and that only this service can make.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::api::error::{ApiError, ApiResult};

/// Start time and correlation id.
const PLACE_BYTES: usize = 8 + 16;
/// 128 bits of the authenticator: nobody guesses them, and the text stays short.
const TAG_BYTES: usize = 16;

/// Makes and reads the cursors of one CVM's operations.
pub(super) struct Cursors<'a> {
    key: &'a [u8; 32],
    cvm_id: i64,
}

impl<'a> Cursors<'a> {
    /// `key` may serve other purposes too.
    pub(super) fn new(key: &'a [u8; 32], cvm_id: i64) -> Self {
        Self { key, cvm_id }
    }

    /// The cursor behind an operation.
    pub(super) fn write(&self, started_at_ms: i64, id: Uuid) -> String {
        let mut bytes = Vec::with_capacity(PLACE_BYTES + TAG_BYTES);
        bytes.extend(started_at_ms.to_be_bytes());
        bytes.extend(id.as_bytes());
        let tag = self.mac(&bytes).finalize().into_bytes();
        bytes.extend(tag.iter().take(TAG_BYTES));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The operation of a cursor: its start and correlation id. What was altered, or made for another CVM, is
    /// refused.
    pub(super) fn read(&self, text: &str) -> ApiResult<(i64, Uuid)> {
        self.open(text).ok_or_else(|| {
            let message = "Input should be next_cursor of an earlier answer about this CVM";
            ApiError::fault(&["query", "cursor"], "value_error", message)
        })
    }

    fn open(&self, text: &str) -> Option<(i64, Uuid)> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (place, tag) = bytes.split_at_checked(PLACE_BYTES).filter(|(_, tag)| tag.len() == TAG_BYTES)?;
        self.mac(place).verify_truncated_left(tag).ok()?;
        let (started_at_ms, id) = place.split_first_chunk::<8>()?;
        Some((i64::from_be_bytes(*started_at_ms), Uuid::from_slice(id).ok()?))
    }

    fn mac(&self, place: &[u8]) -> Hmac<Sha256> {
        // A short key counts as if zeros followed.
        let mut block = [0; 64];
        block.iter_mut().zip(self.key).for_each(|(to, from)| *to = *from);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        // Says what it is for, so that no other use of the key can be mistaken for it.
        mac.update(b"cloister-operations-cursor");
        mac.update(&self.cvm_id.to_be_bytes());
        mac.update(place);
        mac
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    proptest! {
        #[test]
        fn cursors_read_back_for_their_cvm_only(at: i64, id: [u8; 16], cvm: i64, other: i64) {
            let id = Uuid::from_bytes(id);
            let text = Cursors::new(&KEY, cvm).write(at, id);
            prop_assert_eq!(Cursors::new(&KEY, cvm).read(&text).unwrap(), (at, id));
            prop_assert_eq!(Cursors::new(&KEY, other).read(&text).is_ok(), cvm == other);
            prop_assert!(Cursors::new(&[8; 32], cvm).read(&text).is_err());
        }

        #[test]
        fn no_altered_cursor_is_read(at: i64, id: [u8; 16], place in 0..PLACE_BYTES + TAG_BYTES, flip in 1_u8..) {
            let cursors = Cursors::new(&KEY, 1);
            let mut bytes = URL_SAFE_NO_PAD.decode(cursors.write(at, Uuid::from_bytes(id))).unwrap();
            bytes[place] ^= flip;
            prop_assert!(cursors.read(&URL_SAFE_NO_PAD.encode(&bytes)).is_err());
            bytes.truncate(place);
            prop_assert!(cursors.read(&URL_SAFE_NO_PAD.encode(&bytes)).is_err());
        }

        #[test]
        fn no_cursor_panics(text in "\\PC{0,80}") {
            prop_assert!(Cursors::new(&KEY, 1).read(&text).is_err());
        }
    }
}
