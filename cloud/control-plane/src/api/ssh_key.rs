//! Public keys of people.

use ssh_key::{Algorithm, HashAlg, PublicKey};

/// Longest key with its comment, in bytes; RSA keys of 16384 bits stay below it.
pub(crate) const MAX_KEY_BYTES: usize = 8 * 1024;
/// Fewest bits of an RSA key.
const MIN_RSA_BITS: u32 = 2048;

/// A public key that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshPublicKey {
    /// One line in OpenSSH's form.
    pub(crate) line: String,
    /// `SHA256:…`
    pub(crate) fingerprint: String,
    /// Short name of its algorithm.
    pub(crate) key_type: &'static str,
    /// What its owner wrote behind it.
    pub(crate) comment: String,
}

/// Why a text is no key that may log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidSshKey {
    /// Not one line of `<algorithm> <base64> [comment]`.
    #[error(
        "the public key must be one line as OpenSSH writes it, such as the contents of ~/.ssh/id_ed25519.pub"
    )]
    Form,
    /// An algorithm that OpenSSH refuses, or a certificate.
    #[error("keys must be ed25519, ecdsa, rsa, sk-ed25519 or sk-ecdsa; make one with ssh-keygen -t ed25519")]
    Algorithm,
    /// A modulus that can be factored some day.
    #[error("RSA keys must have at least {MIN_RSA_BITS} bits; make another with ssh-keygen -t ed25519")]
    TooShort,
}

impl std::str::FromStr for SshPublicKey {
    type Err = InvalidSshKey;

    fn from_str(text: &str) -> Result<Self, InvalidSshKey> {
        let text = text.trim();
        // A line break would begin another key, a control character a terminal's command.
        if text.len() > MAX_KEY_BYTES || text.contains(char::is_control) {
            return Err(InvalidSshKey::Form);
        }
        let key = PublicKey::from_openssh(text).map_err(|_| InvalidSshKey::Form)?;
        let key_type = match key.algorithm() {
            Algorithm::Ed25519 => "ed25519",
            Algorithm::Ecdsa { .. } => "ecdsa",
            Algorithm::Rsa { .. } => "rsa",
            Algorithm::SkEd25519 => "sk-ed25519",
            Algorithm::SkEcdsaSha2NistP256 => "sk-ecdsa",
            _ => return Err(InvalidSshKey::Algorithm),
        };
        if key.key_data().is_certificate() {
            return Err(InvalidSshKey::Algorithm);
        }
        if key.key_data().rsa().is_some_and(|rsa| bits(rsa) < MIN_RSA_BITS) {
            return Err(InvalidSshKey::TooShort);
        }
        let comment = key.comment().as_str_lossy().to_owned();
        let line = key.to_openssh().map_err(|_| InvalidSshKey::Form)?;
        let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        Ok(Self { line, fingerprint, key_type, comment })
    }
}

/// Bits of a modulus without its leading zeros.
fn bits(rsa: &ssh_key::public::RsaPublicKey) -> u32 {
    let bytes = rsa.n().as_positive_bytes().unwrap_or_default();
    let leading = bytes.first().map_or(0, |byte| byte.leading_zeros());
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_mul(8).saturating_sub(leading)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use proptest::prelude::*;

    use super::*;

    const ED25519: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti me@example.org";

    /// A key of the wire format: an algorithm and its numbers.
    fn encoded(algorithm: &str, parts: &[&[u8]]) -> String {
        let mut blob = Vec::new();
        for part in [algorithm.as_bytes()].iter().chain(parts) {
            blob.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
            blob.extend_from_slice(part);
        }
        format!("{algorithm} {}", BASE64_STANDARD.encode(blob))
    }

    fn rsa(first: u8, bytes: usize) -> String {
        let mut modulus = vec![0xab; bytes];
        modulus[0] = first;
        if first >= 0x80 {
            modulus.insert(0, 0);
        }
        encoded("ssh-rsa", &[&[1, 0, 1], &modulus])
    }

    #[test]
    fn keys_are_read_with_their_comment() {
        let key: SshPublicKey = format!("  {ED25519}\n").parse().unwrap();
        assert_eq!(key.line, ED25519);
        assert_eq!((key.key_type, key.comment.as_str()), ("ed25519", "me@example.org"));
        assert_eq!(key.fingerprint, "SHA256:UCUiLr7Pjs9wFFJMDByLgc3NrtdU344OgUM45wZPcIQ");
        assert_eq!(rsa(0xff, 256).parse::<SshPublicKey>().unwrap().key_type, "rsa");
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_reason() {
        let dsa = encoded("ssh-dss", &[&[7; 20], &[7; 20], &[7; 20], &[7; 20]]);
        for (text, reason) in [
            ("", InvalidSshKey::Form),
            ("ssh-ed25519", InvalidSshKey::Form),
            ("ssh-ed25519 AAAA", InvalidSshKey::Form),
            ("-----BEGIN OPENSSH PRIVATE KEY-----", InvalidSshKey::Form),
            (&ED25519.replace("ssh-ed25519 ", "ssh-rsa "), InvalidSshKey::Form),
            (&format!("{ED25519}\n{ED25519}"), InvalidSshKey::Form),
            (&format!("command=\"rm\" {ED25519}"), InvalidSshKey::Form),
            (&format!("{ED25519} {}", "x".repeat(MAX_KEY_BYTES)), InvalidSshKey::Form),
            (&dsa, InvalidSshKey::Algorithm),
            (&encoded("ssh-new", &[&[1]]), InvalidSshKey::Form),
            (&encoded("new@example.org", &[&[1]]), InvalidSshKey::Algorithm),
            (&rsa(0x7f, 256), InvalidSshKey::TooShort),
            (&rsa(0xff, 128), InvalidSshKey::TooShort),
        ] {
            assert_eq!(text.parse::<SshPublicKey>(), Err(reason), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_reads_is_one_line(text in "(ssh-(rsa|ed25519|dss) [A-Za-z0-9+/=]{0,80})?[ -~\n]{0,40}") {
            if let Ok(key) = text.parse::<SshPublicKey>() {
                prop_assert!(!key.line.contains(char::is_control));
                prop_assert_eq!(key.line.parse::<SshPublicKey>().unwrap(), key);
            }
        }
    }
}
