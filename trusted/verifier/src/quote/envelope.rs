//! A quote's outer form: what must be read before anything can be verified, and the strictness that makes
//! every byte count.

use std::fmt;
use std::time::Duration;

use dcap_qvl::intel;
use dcap_qvl::quote::{AuthData, Quote};

use super::{KnownPlatforms, Tee};
use crate::{CollateralKey, PckCa, TrustRoot, TrustRoots, VerifyError};
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// Longest quote, in bytes; real ones have about 5,000.
pub const MAX_QUOTE_BYTES: usize = 32 << 10;

/// Certification data that wraps the quoting enclave's report, and PEM chain of the platform.
const QE_REPORT_CERTIFICATION: u16 = 6;
const PCK_CERTIFICATE_CHAIN: u16 = 5;
/// Most certificates above a platform's own.
const MAX_CERTIFICATES: usize = 4;
const PEM_LINE: usize = 64;

/// A quote, taken apart; nothing of it is verified.
pub(crate) struct Envelope {
    pub(crate) quote: Quote,
    pub(crate) tee: Tee,
    /// Platform's certificate first, root last; empty if the quote carries none, or one that is known.
    pub(crate) chain: Vec<Vec<u8>>,
    /// What the chain says, if it is known.
    known: Option<CollateralKey>,
}

fn malformed(reason: impl fmt::Display) -> VerifyError {
    VerifyError::Malformed { kind: "quote", reason: format!("{reason}") }
}

impl Envelope {
    /// Takes a quote apart. After it there may be zeros (some drivers pad), and nothing else.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, VerifyError> {
        Self::parse_knowing(bytes, &KnownPlatforms::default())
    }

    /// The same, without taking apart the chain of a known platform.
    pub(crate) fn parse_knowing(bytes: &[u8], platforms: &KnownPlatforms) -> Result<Self, VerifyError> {
        if bytes.len() > MAX_QUOTE_BYTES {
            return Err(malformed(format_args!("it is longer than {MAX_QUOTE_BYTES} bytes")));
        }
        let quote = Quote::parse(bytes).map_err(|_| malformed("its layout is broken"))?;
        let auth_at = quote.signed_length();
        let length = bytes
            .get(auth_at..)
            .and_then(|rest| rest.first_chunk::<4>())
            .map(|length| u32::from_le_bytes(*length))
            .and_then(|length| auth_at.checked_add(4)?.checked_add(usize::try_from(length).ok()?))
            .ok_or_else(|| malformed("it is cut off"))?;
        let padding = bytes.get(length..).ok_or_else(|| malformed("it is cut off"))?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(malformed("something follows it"));
        }
        let tee = if quote.report.is_sgx() { Tee::Sgx } else { Tee::Tdx };
        let known = match quote.inner_cert_type() {
            PCK_CERTIFICATE_CHAIN => platforms.get(quote.inner_cert_data()).filter(|key| key.tee == tee),
            _ => None,
        };
        let chain = match quote.inner_cert_type() {
            PCK_CERTIFICATE_CHAIN if known.is_none() => {
                let chain = intel::extract_cert_chain(&quote)
                    .map_err(|_| malformed("its certificate chain is broken"))?;
                if chain.is_empty() || chain.len() > MAX_CERTIFICATES {
                    return Err(malformed("its certificate chain has a wrong length"));
                }
                if !is_canonical_pem(quote.inner_cert_data(), &chain) {
                    return Err(malformed("its certificate chain is not plain PEM"));
                }
                chain
            }
            _ => Vec::new(),
        };
        if !auth_is_exact(&quote, bytes.get(auth_at.saturating_add(4)..length).unwrap_or_default()) {
            return Err(malformed("its authentication data has odd lengths"));
        }
        Ok(Self { quote, tee, chain, known })
    }

    /// Remembers the platform: the quote was verified.
    pub(crate) fn remember(&self, key: CollateralKey, platforms: &KnownPlatforms) {
        if self.known.is_none() && !self.chain.is_empty() {
            platforms.insert(self.quote.inner_cert_data(), key);
        }
    }

    /// The accepted root at the end of the quote's own chain.
    pub(super) fn root(&self, roots: &TrustRoots) -> Option<TrustRoot> {
        match self.known {
            Some(known) => Some(known.root),
            None => roots.named(self.chain.last()?),
        }
    }

    /// Which collateral it needs, by its own claims.
    pub(crate) fn collateral_key(&self, roots: &TrustRoots) -> Result<CollateralKey, VerifyError> {
        if let Some(known) = self.known {
            return Ok(known);
        }
        let (Some(leaf), Some(root)) = (self.chain.first(), self.chain.last()) else {
            return Err(VerifyError::Rule("the quote does not carry its platform's certificates"));
        };
        let root = roots.named(root).ok_or(VerifyError::UnknownRoot)?;
        let extension = intel::parse_pck_extension(leaf)
            .map_err(|_| malformed("its platform's certificate lacks the platform's description"))?;
        let ca = match intel::pck_ca(leaf) {
            Ok(dcap_qvl::config::PckCa::Processor) => PckCa::Processor,
            Ok(dcap_qvl::config::PckCa::Platform) => PckCa::Platform,
            Err(_) => return Err(malformed("its platform's certificate is broken")),
        };
        Ok(CollateralKey { root, fmspc: extension.fmspc, ca, tee: self.tee })
    }

    /// Whether the root issued the platform's certificate. Revocations are not looked at yet.
    pub(crate) fn check_chain(
        &self,
        key: &CollateralKey,
        roots: &TrustRoots,
        now: Timestamp,
    ) -> Result<(), VerifyError> {
        if self.known.is_some() {
            return Ok(());
        }
        let [leaf, above @ ..] = self.chain.as_slice() else { return Err(VerifyError::UnknownRoot) };
        let root = CertificateDer::from(roots.certificate(key.root).ok_or(VerifyError::UnknownRoot)?);
        let rejected = |error: webpki::Error| {
            VerifyError::rejected(key.root, format_args!("the platform's certificate does not hold: {error}"))
        };
        let anchor = anchor_from_trusted_cert(&root).map_err(rejected)?;
        let above: Vec<_> = above.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        EndEntityCert::try_from(&CertificateDer::from(leaf.as_slice()))
            .and_then(|leaf| {
                leaf.verify_for_usage(
                    &[webpki::ring::ECDSA_P256_SHA256],
                    &[anchor],
                    &above,
                    UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
                    KeyUsage::server_auth(),
                    None,
                    None,
                )
                .map(drop)
            })
            .map_err(rejected)
    }
}

/// Whether `text` is these certificates as everybody writes PEM: 64 columns, line feeds, then at most
/// zeros. Other forms mean the same but would let anybody change a quote's bytes without breaking it.
pub(super) fn is_canonical_pem(text: &[u8], chain: &[Vec<u8>]) -> bool {
    use base64::Engine as _;
    let mut rest = text;
    let mut take = |expected: &[u8]| match rest.strip_prefix(expected) {
        Some(after) => {
            rest = after;
            true
        }
        None => false,
    };
    for certificate in chain {
        let encoded = base64::prelude::BASE64_STANDARD.encode(certificate);
        let plain = take(b"-----BEGIN CERTIFICATE-----\n")
            && encoded.as_bytes().chunks(PEM_LINE).all(|line| take(line) && take(b"\n"))
            && take(b"-----END CERTIFICATE-----");
        if !plain {
            return false;
        }
        take(b"\n");
    }
    rest.iter().all(|byte| *byte == 0)
}

/// Whether the lengths inside the authentication data add up to exactly its own.
fn auth_is_exact(quote: &Quote, auth: &[u8]) -> bool {
    /// Signature, key, QE report, its signature.
    const FIXED: usize = 64 + 64 + 384 + 64;
    /// Certification data type and length.
    const HEAD: usize = 2 + 4;
    let inner = |auth_data: usize, certificates: usize| {
        FIXED.checked_add(2)?.checked_add(auth_data)?.checked_add(HEAD)?.checked_add(certificates)
    };
    match &quote.auth_data {
        AuthData::V3(data) => {
            inner(data.qe_auth_data.data.len(), data.certification_data.body.data.len()) == Some(auth.len())
        }
        AuthData::V4(data) => {
            let report = &data.qe_report_data;
            data.certification_data.cert_type == QE_REPORT_CERTIFICATION
                && inner(report.qe_auth_data.data.len(), report.certification_data.body.data.len())
                    .and_then(|inner| inner.checked_add(HEAD))
                    == Some(auth.len())
        }
    }
}
