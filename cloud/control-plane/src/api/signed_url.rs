//! URLs of logs that carry their own authorisation, because clients fetch them without any header.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use url::Url;
use uuid::Uuid;

/// How long a URL works, in seconds.
pub(crate) const LIFETIME_S: i64 = 60 * 60;

/// Makes and checks signatures for the logs of one VM at a time.
pub(crate) struct Signer<'a> {
    key: &'a [u8; 32],
    public_url: &'a Url,
    now_s: i64,
}

impl<'a> Signer<'a> {
    /// `now_ms` is the current time in Unix milliseconds.
    pub(crate) fn new(key: &'a [u8; 32], public_url: &'a Url, now_ms: i64) -> Self {
        Self { key, public_url, now_s: now_ms.div_euclid(1000) }
    }

    /// The VM's own log; clients append `&ch=serial` and further parameters.
    pub(crate) fn vm_log(&self, vm: Uuid) -> String {
        self.url(vm, None)
    }

    /// The log of a container.
    pub(crate) fn container_log(&self, vm: Uuid, container: &str) -> String {
        self.url(vm, Some(container))
    }

    fn url(&self, vm: Uuid, container: Option<&str>) -> String {
        let mut rest = String::new();
        if let Some(container) = container {
            rest.push('/');
            rest.extend(url::form_urlencoded::byte_serialize(container.as_bytes()));
        }
        let expires = self.now_s.saturating_add(LIFETIME_S);
        let base = self.public_url.as_str().trim_end_matches('/');
        let mut url = format!("{base}/api/v1/logs/{vm}{rest}?expires={expires}&signature=");
        let signature = self.mac(vm, container, expires).finalize().into_bytes();
        for byte in signature {
            let _ = write!(url, "{byte:02x}");
        }
        url
    }

    /// Whether a signature was made for the log of this VM, or of a container of it, and has not expired; compared
    /// in constant time.
    pub(crate) fn holds(&self, vm: Uuid, container: Option<&str>, expires: i64, signature: &str) -> bool {
        let is_fresh = self.now_s < expires && expires <= self.now_s.saturating_add(LIFETIME_S);
        let signature = hex::decode(signature).unwrap_or_default();
        let matches = self.mac(vm, container, expires).verify_slice(&signature).is_ok();
        is_fresh && matches
    }

    fn mac(&self, vm: Uuid, container: Option<&str>, expires: i64) -> Hmac<Sha256> {
        // A short key counts as if zeros followed.
        let mut block = [0; 64];
        block.iter_mut().zip(self.key).for_each(|(to, from)| *to = *from);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        // Says what it is for, so that no other use of the key can be mistaken for it.
        mac.update(b"cloister-log-url");
        mac.update(vm.as_bytes());
        mac.update(&expires.to_be_bytes());
        // Behind parts of fixed length, so that nothing can be read as something else.
        mac.update(&[u8::from(container.is_some())]);
        mac.update(container.unwrap_or_default().as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_790_000_000_000;

    fn parts(url: &str) -> (i64, String) {
        let url = Url::parse(url).unwrap();
        let get = |name: &str| url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        (get("expires").parse().unwrap(), get("signature"))
    }

    #[test]
    fn a_signature_holds_for_its_log_until_it_expires() {
        let base = Url::parse("https://cloud.example").unwrap();
        let at = |now_ms| Signer::new(&[7; 32], &base, now_ms);
        let vm = Uuid::from_bytes([1; 16]);
        let url = at(NOW_MS).container_log(vm, "a b/c");
        assert!(url.starts_with(&format!("https://cloud.example/api/v1/logs/{vm}/a+b%2Fc?")), "{url}");
        let (expires, signature) = parts(&url);
        let container = Some("a b/c");
        assert!(at(NOW_MS).holds(vm, container, expires, &signature));
        assert!(!at(NOW_MS + LIFETIME_S * 1000).holds(vm, container, expires, &signature));
        assert!(!at(NOW_MS).holds(Uuid::nil(), container, expires, &signature));
        assert!(!at(NOW_MS).holds(vm, container, expires + 1, &signature));
        assert!(!at(NOW_MS).holds(vm, container, expires, ""));
        for other in [None, Some(""), Some("a b/d")] {
            assert!(!at(NOW_MS).holds(vm, other, expires, &signature), "{other:?}");
        }
        assert!(!Signer::new(&[8; 32], &base, NOW_MS).holds(vm, container, expires, &signature));
        let (expires, signature) = parts(&at(NOW_MS).vm_log(vm));
        assert!(at(NOW_MS).holds(vm, None, expires, &signature));
        assert!(!at(NOW_MS).holds(vm, Some(""), expires, &signature));
    }
}
