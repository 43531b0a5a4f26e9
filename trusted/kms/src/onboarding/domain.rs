use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest name and longest label, in bytes (RFC 1035).
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Where a KMS is reached: a host name in lower case, or an IP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Domain(String);

/// Not such a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "domain must be an IP address or a host name: labels of 1 to {MAX_LABEL_BYTES} letters, digits and inner \
     hyphens, at most {MAX_NAME_BYTES} bytes"
)]
pub(crate) struct InvalidDomain;

impl FromStr for Domain {
    type Err = InvalidDomain;

    fn from_str(text: &str) -> Result<Self, InvalidDomain> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(address.to_string()));
        }
        let sound = |label: &str| {
            (1..=MAX_LABEL_BYTES).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if text.len() <= MAX_NAME_BYTES && text.split('.').all(sound) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidDomain)
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_addresses_are_domains() {
        for (text, domain) in [
            ("kms.example", "kms.example"),
            ("KMS.Example", "kms.example"),
            ("localhost", "localhost"),
            ("10.0.2.2", "10.0.2.2"),
            ("::1", "::1"),
            ("2001:DB8::0", "2001:db8::"),
            (&"a".repeat(63), &"a".repeat(63)),
        ] {
            assert_eq!(text.parse::<Domain>().unwrap().to_string(), domain, "{text}");
        }
    }

    #[test]
    fn everything_else_is_not() {
        let long = ["a".repeat(63).as_str(); 4].join(".");
        for text in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "a b",
            "a_b",
            "ü.example",
            "a/b",
            "a:1",
            "[::1]",
            "a\n",
            &"a".repeat(64),
            &long,
        ] {
            assert_eq!(text.parse::<Domain>(), Err(InvalidDomain), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_domain_is_the_same_when_read_again(text in "[a-zA-Z0-9.:-]{0,40}") {
            if let Ok(domain) = text.parse::<Domain>() {
                prop_assert_eq!(domain.to_string().parse(), Ok(domain));
            }
        }
    }
}
