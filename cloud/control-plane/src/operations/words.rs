//! What tenants are told of reasons.

use std::net::{IpAddr, SocketAddr};

/// Hides addresses and paths of hosts, which only operators may know.
pub(crate) fn sanitised(text: &str) -> String {
    let is_private = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && !"/[]:".contains(c));
        let address = word.trim_matches(':');
        word.starts_with('/') || address.parse::<SocketAddr>().is_ok() || address.parse::<IpAddr>().is_ok()
    };
    text.split(' ').map(|word| if is_private(word) { "[hidden]" } else { word }).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_hidden_and_words_stay() {
        for (text, shown) in [
            (
                "node answers 500 at 10.0.0.7:7443, see /var/lib/x.log",
                "node answers 500 at [hidden] see [hidden]",
            ),
            ("image docker.io/library/x:1 was not found", "image docker.io/library/x:1 was not found"),
            ("[::1]:80 refused", "[hidden] refused"),
        ] {
            assert_eq!(sanitised(text), shown);
        }
    }
}
