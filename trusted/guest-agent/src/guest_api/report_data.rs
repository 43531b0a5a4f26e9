//! From what a caller gives to the 64 bytes that a quote is made over (platform reference, section 6).

use cloister_evidence::report_data::{ReportData, padded};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use sha3::{Keccak256, Keccak384, Keccak512, Sha3_256, Sha3_384, Sha3_512};

/// Bytes that cannot be quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReportDataError {
    #[error("Report data is too long: at most 64 bytes")]
    TooLong,
    #[error("report_data must be exactly 64 bytes here")]
    NotWhole,
    #[error("invalid hash algorithm: {0}")]
    Algorithm(String),
}

const DEFAULT_ALGORITHM: &str = "sha512";
const DEFAULT_PREFIX: &str = "app-data";
const RAW: &str = "raw";

/// At most 64 bytes, padded with zeros on the right.
pub(crate) fn given(bytes: &[u8]) -> Result<ReportData, ReportDataError> {
    padded(bytes).ok_or(ReportDataError::TooLong)
}

/// Exactly 64 bytes.
pub(crate) fn whole(bytes: &[u8]) -> Result<ReportData, ReportDataError> {
    bytes.try_into().map_err(|_| ReportDataError::NotWhole)
}

/// What the legacy `TdxQuote` hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hashed {
    pub(crate) report_data: ReportData,
    pub(crate) algorithm: String,
    pub(crate) prefix: String,
}

/// H(prefix ‖ ":" ‖ bytes), shorter digests padded with zeros on the right; `raw` takes 64 bytes as they
/// are.
pub(crate) fn hashed(bytes: &[u8], algorithm: &str, prefix: &str) -> Result<Hashed, ReportDataError> {
    let algorithm = if algorithm.is_empty() { DEFAULT_ALGORITHM } else { algorithm };
    if algorithm == RAW {
        let report_data = whole(bytes)?;
        return Ok(Hashed { report_data, algorithm: RAW.to_owned(), prefix: String::new() });
    }
    let prefix = if prefix.is_empty() { DEFAULT_PREFIX } else { prefix };
    let text = [prefix.as_bytes(), b":", bytes].concat();
    let digest = match algorithm {
        "sha256" => Sha256::digest(text).to_vec(),
        "sha384" => Sha384::digest(text).to_vec(),
        "sha512" => Sha512::digest(text).to_vec(),
        "sha3-256" => Sha3_256::digest(text).to_vec(),
        "sha3-384" => Sha3_384::digest(text).to_vec(),
        "sha3-512" => Sha3_512::digest(text).to_vec(),
        "keccak256" => Keccak256::digest(text).to_vec(),
        "keccak384" => Keccak384::digest(text).to_vec(),
        "keccak512" => Keccak512::digest(text).to_vec(),
        other => return Err(ReportDataError::Algorithm(other.chars().take(32).collect())),
    };
    Ok(Hashed { report_data: given(&digest)?, algorithm: algorithm.to_owned(), prefix: prefix.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_the_published_vector() {
        let bytes: Vec<u8> = (0..0x20).collect();
        let hashed = hashed(&bytes, "", "").unwrap();
        assert_eq!(
            hex::encode(hashed.report_data),
            "e8311c6a639ba8252a1548c81d63538340c5f277094a430f898d97603d8cc93c962d555241df8314a7c8c2579d4cab3cedb81fba30a7e31f2e3a1a60720a62ee"
        );
        assert_eq!((hashed.algorithm.as_str(), hashed.prefix.as_str()), ("sha512", "app-data"));
    }

    #[test]
    fn knows_every_algorithm_and_keeps_short_digests_to_the_left() {
        let mut seen = std::collections::BTreeSet::new();
        for (algorithm, bytes) in [
            ("sha256", 32),
            ("sha384", 48),
            ("sha512", 64),
            ("sha3-256", 32),
            ("sha3-384", 48),
            ("sha3-512", 64),
            ("keccak256", 32),
            ("keccak384", 48),
            ("keccak512", 64),
        ] {
            let hashed = hashed(b"x", algorithm, "p").unwrap();
            assert!(hashed.report_data[bytes..].iter().all(|byte| *byte == 0), "{algorithm}");
            assert!(hashed.report_data[..bytes].iter().any(|byte| *byte != 0), "{algorithm}");
            assert!(seen.insert(hashed.report_data), "{algorithm}");
        }
        assert_eq!(hashed(b"x", "md5", ""), Err(ReportDataError::Algorithm("md5".into())));
    }

    #[test]
    fn raw_and_plain_data_have_their_lengths() {
        assert_eq!(hashed(&[1; 63], "raw", ""), Err(ReportDataError::NotWhole));
        assert_eq!(hashed(&[1; 64], "raw", "ignored").unwrap().report_data, [1; 64]);
        assert_eq!(given(&[1; 65]), Err(ReportDataError::TooLong));
        let padded = given(&[0x12, 0x34]).unwrap();
        assert_eq!((padded[..2].to_vec(), padded[2..].to_vec()), (vec![0x12, 0x34], vec![0; 62]));
    }
}
