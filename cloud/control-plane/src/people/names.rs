//! What people may be called.

const MAX_USERNAME: usize = 39;
const MAX_EMAIL: usize = 254;
/// OpenID Connect Core section 2.
const MAX_SUBJECT: usize = 255;

/// Whether a text may be a login name: 1 to 39 characters, lower-case letters, digits, `-`, `_` and `.`, the first of them a
/// letter or a digit.
pub(crate) fn is_username(text: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let name = text.as_bytes();
    name.len() <= MAX_USERNAME
        && name.first().is_some_and(is_plain)
        && name.iter().all(|byte| is_plain(byte) || b"-_.".contains(byte))
}

/// Whether a text has the form of a mail address, of at most 254 bytes.
pub(crate) fn is_mail_address(text: &str) -> bool {
    let has_form = text.split_once('@').is_some_and(|(name, domain)| !name.is_empty() && !domain.is_empty());
    has_form && text.len() <= MAX_EMAIL && !text.contains(|c: char| c.is_control() || c.is_whitespace())
}

/// Whether a text may be what an OpenID provider calls somebody: 1 to 255 printable ASCII characters.
pub(crate) fn is_subject(text: &str) -> bool {
    let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    (1..=MAX_SUBJECT).contains(&text.len()) && text.bytes().all(is_printable)
}
