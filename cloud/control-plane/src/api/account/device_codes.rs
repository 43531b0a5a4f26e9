//! What devices show, and the keys that they make of what they do not show.

use crate::api::auth::new_key;
use crate::api::error::{ApiError, ApiResult};
use crate::clock::{NoRandomness, Random};
use crate::sealing::derived;

/// Letters that nobody takes for others, and that make no words (RFC 8628 section 6.1).
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const HALF: usize = 4;

/// The key of the device with a code, and what of it may be shown.
pub(super) fn key_of(device_code: &str) -> ApiResult<(String, String)> {
    let secret = derived(device_code.as_bytes(), b"cloister-device-key", b"")
        .map_err(|error| ApiError::internal(&error))?;
    Ok(new_key(*secret))
}

/// A code for people. Bytes that would make some letters likelier than others are passed over.
pub(super) fn user_code(random: Random) -> Result<String, NoRandomness> {
    let mut code = String::with_capacity(2 * HALF + 1);
    while code.len() <= 2 * HALF {
        for byte in random.bytes::<16>()? {
            if code.len() == HALF {
                code.push('-');
            }
            let letter = LETTERS.get(usize::from(byte) % LETTERS.len()).copied();
            if let Some(letter) = letter.filter(|_| byte < 240 && code.len() <= 2 * HALF) {
                code.push(char::from(letter));
            }
        }
    }
    Ok(code)
}

/// The code that somebody typed.
pub(in crate::api) fn typed(text: &str) -> String {
    let letters = text.chars().filter(char::is_ascii_alphanumeric).take(2 * HALF + 1);
    let mut code: String = letters.map(|letter| letter.to_ascii_uppercase()).collect();
    if code.len() > HALF {
        code.insert(HALF, '-');
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_for_people_are_eight_letters_of_twenty() {
        for _ in 0..200 {
            let code = user_code(Random).unwrap();
            assert_eq!((code.len(), code.as_bytes()[HALF]), (9, b'-'));
            assert!(code.bytes().all(|byte| byte == b'-' || LETTERS.contains(&byte)), "{code}");
            assert_eq!(typed(&code), code);
            assert_eq!(typed(&code.to_lowercase().replace('-', " ")), code);
        }
    }

    #[test]
    fn whatever_is_typed_is_short() {
        for (text, code) in
            [("", ""), ("b", "B"), ("bcdfg", "BCDF-G"), ("\u{e4}--", ""), ("bcdfghjklmnp", "BCDF-GHJKL")]
        {
            assert_eq!(typed(text), code, "{text}");
        }
    }
}
