//! The certificates above a report, and what the lowest says about the chip.

use cloister_evidence::SnpReport;
use jiff::Timestamp;
use sev::certs::snp::{Certificate, Verifiable, ca};
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

/// AMD's root keys by processor family.
#[derive(Debug)]
pub(crate) struct Arks(Vec<(TrustRoot, Certificate)>);

impl Arks {
    /// The accepted ones: AMD's, and the development root where it is one for reports.
    pub(crate) fn of(roots: &TrustRoots) -> Self {
        let names =
            [TrustRoot::AmdArkMilan, TrustRoot::AmdArkGenoa, TrustRoot::AmdArkTurin, TrustRoot::Development];
        let ark = |root| Some((root, Certificate::from_der(roots.certificate(root)?).ok()?));
        Self(names.into_iter().filter_map(ark).collect())
    }
}

impl SnpChain {
    /// The root that vouches for the report's signing key, and that key (SEC1 point).
    pub(super) fn verify(
        &self,
        report: &SnpReport<'_>,
        arks: &Arks,
        now: Timestamp,
    ) -> Result<(TrustRoot, Vec<u8>), VerifyError> {
        let [ask, vek] = [("signing key", &self.ask), ("chip's key", &self.vek)].map(|(name, der)| {
            let reason = || VerifyError::Malformed { kind: "SNP certificate chain", reason: name.into() };
            let sound = der.len() <= MAX_CERTIFICATE_BYTES;
            let certificate = Certificate::from_der(der).ok().filter(|_| sound).ok_or_else(reason)?;
            let parsed = X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty());
            Ok::<_, VerifyError>((certificate, parsed.ok_or_else(reason)?.1))
        });
        let ((ask, parsed_ask), (vek, parsed_vek)) = (ask?, vek?);
        // Roots differ in nothing but their keys: the one that vouches is the one whose signature holds.
        let (root, ark) = arks
            .0
            .iter()
            .find(|(_, ark)| ca::Chain { ark: ark.clone(), ask: ask.clone() }.verify().is_ok())
            .ok_or(VerifyError::UnknownRoot)?;
        let rejected = |reason: &str| VerifyError::rejected(*root, reason);
        (&ask, &vek).verify().map_err(|_| rejected("AMD's signing key does not vouch for the chip's key"))?;

        // Signatures cover only one of the two places where a certificate names its algorithm.
        let is_consistent = |of: &X509Certificate<'_>| of.signature_algorithm == of.tbs_certificate.signature;
        if !is_consistent(&parsed_ask) || !is_consistent(&parsed_vek) {
            return Err(rejected("a certificate names two signature algorithms"));
        }
        let ark = ark.to_der().map_err(|_| rejected("the root is unusable"))?;
        let (_, parsed_ark) =
            X509Certificate::from_der(&ark).map_err(|_| rejected("the root is unusable"))?;
        for (name, certificate) in
            [("root", &parsed_ark), ("signing key", &parsed_ask), ("chip's key", &parsed_vek)]
        {
            if !is_valid(certificate, now) {
                return Err(rejected(&format!("the certificate of AMD's {name} is not valid at this time")));
            }
        }
        if !parsed_ask.is_ca() || parsed_vek.is_ca() {
            return Err(rejected("a certificate is used for what it was not issued for"));
        }
        check_chip(&parsed_vek, report).map_err(rejected)?;
        Ok((*root, vek.public_key_sec1().to_vec()))
    }
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
