//! What of an upstream's words may reach a client: nothing that tells where it is, who it is, or how its operator's
//! account stands. In doubt the whole text is dropped.

/// Longest text that is passed on, in bytes.
const MAX_TEXT: usize = 1000;
/// Shortest run of hex digits that may be a key or an id.
const HEX_RUN: usize = 16;
/// Shortest run of letters and digits that may be a token.
const TOKEN_RUN: usize = 24;

/// Ends of host names.
const DOMAINS: [&str; 32] = [
    "com",
    "net",
    "org",
    "io",
    "ai",
    "dev",
    "app",
    "cloud",
    "co",
    "cn",
    "de",
    "eu",
    "fr",
    "gov",
    "info",
    "in",
    "jp",
    "me",
    "run",
    "sh",
    "tech",
    "tv",
    "uk",
    "us",
    "xyz",
    "internal",
    "local",
    "lan",
    "localhost",
    "svc",
    "cluster",
    "host",
];

/// Words about an account that is not the client's, in lower case.
const ACCOUNT: [&str; 18] = [
    "account",
    "api key",
    "api_key",
    "apikey",
    "authorization",
    "balance",
    "bearer",
    "billing",
    "credential",
    "credit",
    "invoice",
    "localhost",
    "organization",
    "payment",
    "quota",
    "sk-",
    "subscription",
    "workspace",
];

/// A text, if nothing in it is private; `private` are names that may not appear, whatever their case. A leading status
/// or code of the upstream is taken off.
pub(super) fn scrub<'a>(text: &str, private: impl Iterator<Item = &'a str>) -> Option<String> {
    let text = without_code(without_status(text.trim())).trim();
    let lower = text.to_lowercase();
    let is_private = text.is_empty()
        || text.len() > MAX_TEXT
        || lower.contains("://")
        || private.into_iter().any(|name| !name.is_empty() && lower.contains(&name.to_lowercase()))
        || ACCOUNT.iter().any(|word| lower.contains(word))
        || lower.split(|character| !is_of_word(character)).any(is_private_word);
    (!is_private)
        .then(|| text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect())
}

/// Takes off `<400> `.
fn without_status(text: &str) -> &str {
    let rest = text.strip_prefix('<').and_then(|rest| rest.split_once("> "));
    rest.filter(|(status, _)| status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(text, |(_, rest)| rest)
}

/// Takes off `A.B.C: `.
fn without_code(text: &str) -> &str {
    let is_code = |code: &str| {
        code.contains('.')
            && code
                .split('.')
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    text.split_once(": ").filter(|(code, _)| is_code(code)).map_or(text, |(_, rest)| rest)
}

const fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_')
}

/// An address, a host, an id or a token; in lower case.
fn is_private_word(word: &str) -> bool {
    let word = word.trim_matches(['.', '-', '_']);
    is_address(word) || is_host(word) || has_long_hex(word) || is_uuid(word) || is_token(word)
}

fn is_address(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    parts.len() >= 4
        && parts.windows(4).any(|four| {
            four.iter()
                .all(|part| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit()))
        })
}

fn is_host(word: &str) -> bool {
    word.rsplit_once('.').is_some_and(|(name, end)| !name.is_empty() && DOMAINS.contains(&end))
        || word.starts_with("www.")
}

fn has_long_hex(word: &str) -> bool {
    word.split(|character: char| !character.is_ascii_hexdigit()).any(|run| run.len() >= HEX_RUN)
}

fn is_uuid(word: &str) -> bool {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let groups: Vec<&str> = word.split('-').collect();
    groups.windows(GROUPS.len()).any(|five| {
        five.iter().zip(GROUPS).all(|(group, length)| {
            // Names may stand right before and after it.
            let digits = group.bytes().filter(u8::is_ascii_hexdigit).count();
            group.len() >= length && digits >= length
        })
    })
}

/// Long, and letters mixed with digits: words are not.
fn is_token(word: &str) -> bool {
    word.len() >= TOKEN_RUN
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
}
