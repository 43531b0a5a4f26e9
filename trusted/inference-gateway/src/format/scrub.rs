//! What of an upstream's words may reach a client: nothing that tells where it is, who it is, or how its operator's
//! account stands. In doubt the whole text is dropped. Words count as such: an account is none that `get_account_balance`
//! speaks of, and `task-1` is no key.

use std::net::Ipv6Addr;

/// Longest text that is passed on, in bytes.
const MAX_TEXT: usize = 1000;
/// Shortest run of hex digits that may be a key or an id.
const HEX_RUN: usize = 16;
/// Shortest word that may be a token or the name of a machine, and shortest part of one that is one by itself: names of models
/// and members of requests have parts that are letters or digits.
const TOKEN: usize = 24;
const TOKEN_PART: usize = 9;
/// What stands for such a word.
const REMOVED: &str = "[removed]";
/// Names that are so short are found as words only.
const SHORT_NAME: usize = 8;

/// Ends of host names.
const DOMAINS: [&str; 40] = [
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
    "corp",
    "intra",
    "ml",
    "network",
    "services",
    "site",
    "systems",
    "zone",
];

/// Words about an account that is not the client's, in lower case; also with an `s` at the end.
const ACCOUNT: [&str; 16] = [
    "account",
    "api_key",
    "api-key",
    "apikey",
    "authorization",
    "balance",
    "bearer",
    "billing",
    "credential",
    "credit",
    "invoice",
    "organization",
    "payment",
    "quota",
    "subscription",
    "workspace",
];
/// The same in two words.
const API_KEY: &str = "api key";
/// How keys begin.
const KEYS: [&str; 2] = ["sk-", "akia"];

/// A text, if nothing in it is private; `private` are names that may not appear, whatever their case. A leading status
/// or code of the upstream is taken off, and what may be a token or the name of a machine is left out.
pub(super) fn scrub<'a>(text: &str, private: impl Iterator<Item = &'a str>) -> Option<String> {
    let text = without_code(without_status(text.trim())).trim();
    let lower = text.to_ascii_lowercase();
    let is_private = text.is_empty()
        || text.len() > MAX_TEXT
        || lower.contains("://")
        || lower.contains(API_KEY)
        || private.into_iter().any(|name| names(text, &lower, &name.to_ascii_lowercase()))
        || words(text).any(is_of_account)
        || words(&lower).any(is_private_word)
        || lower.split(is_around_port).any(has_port)
        || lower.split(|character: char| !character.is_alphanumeric() && character != ':').any(is_ipv6);
    (!is_private).then(|| without_tokens(text))
}

/// Whether a text has a name in it, both in lower case; a short one as a word of its own, or of one `LikeThis`.
fn names(text: &str, lower: &str, name: &str) -> bool {
    let is_whole = |at: usize| {
        let (before, rest) = text.split_at(at);
        let begins_one = rest.starts_with(char::is_uppercase) || !before.ends_with(char::is_alphanumeric);
        let next = rest.chars().nth(name.chars().count());
        begins_one && !next.is_some_and(|next| next.is_numeric() || next.is_lowercase())
    };
    !name.is_empty() && lower.match_indices(name).any(|(at, _)| name.len() >= SHORT_NAME || is_whole(at))
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
    character.is_ascii_alphanumeric() || is_joint(character)
}

const fn is_joint(character: char) -> bool {
    matches!(character, '.' | '-' | '_')
}

/// Letters and digits with dots, hyphens and underscores between them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character| !is_of_word(character)).map(|word| word.trim_matches(is_joint))
}

/// A text with something else in the place of its tokens; its lines become one.
fn without_tokens(text: &str) -> String {
    let mut public = String::with_capacity(text.len());
    for piece in text.split_inclusive(|character| !is_of_word(character)) {
        let word = piece.trim_end_matches(|character| !is_of_word(character)).trim_matches(is_joint);
        if is_token(word) {
            public.push_str(&piece.replacen(word, REMOVED, 1));
        } else {
            public.push_str(piece);
        }
    }
    public.replace(char::is_control, " ")
}

/// An address, a host, an id or a key; in lower case.
fn is_private_word(word: &str) -> bool {
    is_address(word)
        || is_host(word)
        || has_long_hex(word)
        || is_uuid(word)
        || KEYS.iter().any(|begin| word.starts_with(begin))
}

/// A word about an account, or one that such a word is a part of, `LikeThis`, or the id of one.
fn is_of_account(word: &str) -> bool {
    let is_such = |word: &str| {
        let word = word.to_ascii_lowercase();
        let one = word.strip_suffix('s').or(word.strip_suffix("_id")).unwrap_or(&word);
        ACCOUNT.contains(&one)
    };
    let mut begin = 0;
    let ends = word.match_indices(|character: char| character.is_ascii_uppercase()).map(|(at, _)| at);
    ends.chain([word.len()]).any(|end| is_such(&word[std::mem::replace(&mut begin, end)..end]))
        || is_such(word)
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
        || word == "localhost"
}

fn is_around_port(character: char) -> bool {
    character.is_whitespace() || matches!(character, '/' | ',' | '=' | '\'' | '"')
}

/// Whether it ends like a name of a machine with a port.
fn has_port(text: &str) -> bool {
    let text = text.trim_matches(|character: char| !character.is_ascii_alphanumeric());
    text.rsplit_once(':').is_some_and(|(name, port)| {
        (3..=5).contains(&port.len())
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && name.contains(['.', '-'])
            && name.contains(|character: char| character.is_ascii_alphabetic())
            && name.ends_with(|last: char| last.is_ascii_alphanumeric())
    })
}

fn is_ipv6(text: &str) -> bool {
    // A sentence may go on with a colon after it.
    [Some(text), text.strip_suffix(':')]
        .into_iter()
        .flatten()
        .any(|text| text != "::" && text.parse::<Ipv6Addr>().is_ok())
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

/// A long word with a part that is neither letters nor digits nor like `405B`, or one with such a part that is long itself.
fn is_token(word: &str) -> bool {
    let is_plain = |part: &str| {
        let number = part.strip_suffix(|last: char| last.is_ascii_alphabetic()).unwrap_or(part);
        part.len() <= 3
            || number.bytes().all(|byte| byte.is_ascii_digit())
            || part.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    word.split(is_joint).any(|part| (part.len() >= TOKEN_PART || word.len() >= TOKEN) && !is_plain(part))
}
