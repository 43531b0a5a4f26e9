//! Ids that the gateway gives: they begin with their time, so that those that are looked for together stand together.
//!
//! | Hex digits | |
//! |---|---|
//! | 12 | milliseconds since the Unix epoch, as in a UUID of version 7 (RFC 9562) |
//! | the others | random |
//!
//! The id of a receipt has the first digits of that of its request, as has the answer's ([`crate::format::answer_id`]): whoever
//! has that one knows where the receipt is.

use crate::gateway::unix_now_ms;

/// Bytes of the time.
const TIME_BYTES: usize = 6;
/// Digits of a receipt's id.
const RECEIPT_DIGITS: usize = 24;
/// Digits of a random number of 64 bits.
const RANDOM_DIGITS: usize = 16;

/// An id, without its prefix, of so many random bytes; the time takes the place of the first ones.
pub(crate) fn of<const BYTES: usize>(mut random: [u8; BYTES]) -> String {
    let time = unix_now_ms().to_be_bytes();
    for (byte, time) in random.iter_mut().zip(time.into_iter().skip(time.len() - TIME_BYTES)) {
        *byte = time;
    }
    let mut digits = vec![0; 2 * BYTES];
    // Two digits for each byte have room, and all of them are ASCII: neither can fail.
    let _ = hex::encode_to_slice(random, &mut digits);
    String::from_utf8(digits).unwrap_or_default()
}

/// The id of the receipt of a request, by the request's id or its answer's: `rcpt-` and 24 hex digits for those that the
/// gateway gives; `None` for ids that begin in another way.
pub(crate) fn receipt_of(id: &str) -> Option<String> {
    let unique = ["req_", "resp_", "msg_"].iter().find_map(|prefix| id.strip_prefix(prefix))?;
    Some(["rcpt-", unique.get(..RECEIPT_DIGITS).unwrap_or(unique)].concat())
}

/// The random number that an id of at least [`RANDOM_DIGITS`] random digits ends with: nobody knows it before the id.
pub(crate) fn random_of(id: &str) -> Option<u64> {
    let digits = id.get(id.len().checked_sub(RANDOM_DIGITS)?..)?;
    let mut random = [0; RANDOM_DIGITS / 2];
    hex::decode_to_slice(digits, &mut random).ok()?;
    Some(u64::from_be_bytes(random))
}

/// The time that an id begins with; whatever follows its last `-` or `_`, if that are hex digits.
pub(crate) fn time_of(id: &str) -> Option<[u8; TIME_BYTES]> {
    let unique = id.rsplit(['-', '_']).next()?;
    let mut time = [0; TIME_BYTES];
    hex::decode_to_slice(unique.get(..2 * TIME_BYTES)?, &mut time).ok()?;
    Some(time)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::format::answer_id;
    use crate::surface::Surface;

    fn random(number: u16) -> [u8; 12] {
        let mut random = [0xff; 12];
        random[10..].copy_from_slice(&number.to_be_bytes());
        random
    }

    #[test]
    fn ids_are_ordered_by_their_time_and_all_different() {
        let before = unix_now_ms();
        let ids: Vec<_> = (0..1000_u16).map(|number| of(random(number))).collect();
        let after = unix_now_ms();
        for id in &ids {
            assert_eq!(id.len(), 24);
            let time = time_of(&format!("rcpt-{id}")).unwrap();
            let time = time.iter().fold(0, |time, byte| time << 8 | u64::from(*byte));
            assert!((before..=after).contains(&time), "{id}");
        }
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }

    #[test]
    fn a_receipt_is_called_like_its_request() {
        let request = format!("req_{}", of([0xab; 16]));
        let receipt = receipt_of(&request).unwrap();
        assert_eq!(receipt.len(), "rcpt-".len() + 24);
        assert_eq!(receipt["rcpt-".len()..], request["req_".len()..][..24]);
        assert_eq!(time_of(&receipt), time_of(&request));
        for surface in [Surface::Chat, Surface::Completions, Surface::Responses, Surface::Messages] {
            let answer = answer_id(surface, &request).unwrap();
            assert_eq!(receipt_of(&answer).as_ref(), Some(&receipt), "{answer}");
        }
        for id in ["chatcmpl-0123456789abcdef0123456789abcdef", "rcpt-1", ""] {
            assert_eq!(receipt_of(id), None, "{id}");
        }
        assert_eq!(receipt_of("req_ä").as_deref(), Some("rcpt-ä"));
    }

    #[test]
    fn a_number_is_what_an_id_ends_with() {
        let request = format!("req_{}", of([7, 7, 7, 7, 7, 7, 7, 7, 1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(random_of(&request), Some(0x0102_0304_0506_0708));
        for id in ["", "req_1", "0123456789abcde", "req_0123456789abcdeg", "req_0123456789abcd\u{e4}"] {
            assert_eq!(random_of(id), None, "{id}");
        }
    }

    #[test]
    fn other_ids_have_no_time() {
        for id in ["", "rcpt-1", "chat", "resp_0123456789ag0", "0123456789a"] {
            assert_eq!(time_of(id), None, "{id}");
        }
        assert_eq!(time_of("msg_0123456789abff"), Some([0x01, 0x23, 0x45, 0x67, 0x89, 0xab]));
    }
}
