//! The certificates above a report, and what the lowest says about the chip.

use cloister_evidence::SnpReport;
use jiff::Timestamp;
use ring::signature::{RSA_PSS_2048_8192_SHA384, UnparsedPublicKey};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{TrustRoot, TrustRoots, VerifyError};

/// Longest certificate, in bytes.
const MAX_CERTIFICATE_BYTES: usize = 8 << 10;
/// What a certificate of a chip says about it (VCEK certificate specification, table 8).
const BOOTLOADER: &str = "1.3.6.1.4.1.3704.1.3.1";
const TEE: &str = "1.3.6.1.4.1.3704.1.3.2";
const SNP: &str = "1.3.6.1.4.1.3704.1.3.3";
const MICROCODE: &str = "1.3.6.1.4.1.3704.1.3.8";
const FMC: &str = "1.3.6.1.4.1.3704.1.3.9";
const HARDWARE_ID: &str = "1.3.6.1.4.1.3704.1.4";
/// Key information: bits 2 to 4 name the signing key.
const SIGNING_KEY_SHIFT: u32 = 2;
const SIGNING_KEY_MASK: u32 = 0b111;
/// The only signature algorithm of AMD's certificates.
const RSA_PSS: &str = "1.2.840.113549.1.1.10";
/// Roots that can vouch for reports.
const ARKS: [TrustRoot; 4] =
    [TrustRoot::AmdArkMilan, TrustRoot::AmdArkGenoa, TrustRoot::AmdArkTurin, TrustRoot::Development];
const VCEK: u32 = 0;
const VLEK: u32 = 1;

/// The certificates that come with a report; AMD's own root is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnpChain {
    /// AMD's signing key (ASK; ASVK for a VLEK), DER.
    pub ask: Vec<u8>,
    /// The chip's or the cloud's key that signs reports (VCEK or VLEK), DER.
    pub vek: Vec<u8>,
}

impl SnpChain {
    /// The root that vouches for the report's signing key, and that key (SEC1 point).
    pub(super) fn verify(
        &self,
        report: &SnpReport<'_>,
        roots: &TrustRoots,
        now: Timestamp,
    ) -> Result<(TrustRoot, Vec<u8>), VerifyError> {
        let ask = parse(&self.ask, "AMD's signing key")?;
        let vek = parse(&self.vek, "the chip's key")?;
        // Roots differ in nothing but their keys: the one that vouches is the one whose signature holds.
        let vouches = |root: &TrustRoot| {
            let der = roots.certificate(*root).unwrap_or_default();
            X509Certificate::from_der(der).is_ok_and(|(_, ark)| is_signed(&ask, &ark))
        };
        let root = ARKS.into_iter().find(vouches).ok_or(VerifyError::UnknownRoot)?;
        let rejected = |reason: &str| VerifyError::rejected(root, reason);
        if !is_signed(&vek, &ask) {
            return Err(rejected("AMD's signing key does not vouch for the chip's key"));
        }
        for (name, certificate) in [("AMD's signing key", &ask), ("the chip's key", &vek)] {
            if !is_valid(certificate, now) {
                return Err(rejected(&format!("the certificate of {name} is not valid at this time")));
            }
        }
        if !ask.is_ca() || vek.is_ca() {
            return Err(rejected("a certificate is used for what it was not issued for"));
        }
        check_chip(&vek, report).map_err(rejected)?;
        Ok((root, vek.public_key().subject_public_key.data.to_vec()))
    }
}

fn parse<'a>(der: &'a [u8], name: &str) -> Result<X509Certificate<'a>, VerifyError> {
    let parsed = X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty());
    parsed.filter(|_| der.len() <= MAX_CERTIFICATE_BYTES).map(|(_, certificate)| certificate).ok_or_else(
        || {
            let reason = format!("the certificate of {name} is broken");
            VerifyError::Malformed { kind: "SNP certificate chain", reason }
        },
    )
}

/// Whether `issuer` signed `certificate`, with RSA-PSS and SHA-384: AMD uses nothing else.
fn is_signed(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    // Signatures cover only one of the two places where a certificate names its algorithm.
    let algorithm = &certificate.signature_algorithm;
    let key = issuer.public_key().subject_public_key.data.as_ref();
    *algorithm == certificate.tbs_certificate.signature
        && algorithm.algorithm.to_id_string() == RSA_PSS
        && certificate.issuer() == issuer.subject()
        && UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA384, key)
            .verify(certificate.tbs_certificate.as_ref(), &certificate.signature_value.data)
            .is_ok()
}

fn is_valid(certificate: &X509Certificate<'_>, now: Timestamp) -> bool {
    let validity = certificate.validity();
    (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now.as_second())
}

/// Whether the certificate is for exactly the platform that the report describes.
fn check_chip(certificate: &X509Certificate<'_>, report: &SnpReport<'_>) -> Result<(), &'static str> {
    let key = (report.key_information >> SIGNING_KEY_SHIFT) & SIGNING_KEY_MASK;
    let tcb = report.reported_tcb;
    let versions = [
        (BOOTLOADER, Some(tcb.bootloader)),
        (TEE, Some(tcb.tee)),
        (SNP, Some(tcb.snp)),
        (MICROCODE, Some(tcb.microcode)),
        (FMC, tcb.fmc),
    ];
    for (oid, version) in versions {
        let Some(version) = version else { continue };
        let certified = extension(certificate, oid).and_then(small_integer);
        if certified != Some(version) {
            return Err("the chip's key was issued for other firmware than the report names");
        }
    }
    match (key, extension(certificate, HARDWARE_ID)) {
        // A masked id cannot be compared; the key still proves that AMD made the chip.
        (VCEK, Some(id)) => {
            let same = report.chip_id.get(..id.len()) == Some(id)
                && report.chip_id.iter().skip(id.len()).all(|byte| *byte == 0);
            let masked = *report.chip_id == [0; 64];
            if same || masked { Ok(()) } else { Err("the chip's key was issued for another chip") }
        }
        (VLEK, None) => Ok(()),
        _ => Err("the report was not signed by the kind of key that it names"),
    }
}

fn extension<'a>(certificate: &X509Certificate<'a>, oid: &str) -> Option<&'a [u8]> {
    let mut found = certificate.extensions().iter().filter(|extension| extension.oid.to_id_string() == oid);
    let first = found.next()?;
    // Twice the same would let two readers see two chips.
    found.next().is_none().then_some(first.value)
}

/// A DER integer from 0 to 255.
fn small_integer(der: &[u8]) -> Option<u8> {
    match *der {
        [0x02, 0x01, value] if value < 0x80 => Some(value),
        [0x02, 0x02, 0x00, value] if value >= 0x80 => Some(value),
        _ => None,
    }
}
