//! Certificates of guest agents as answers show them. They come from guests: nothing in them is believed.

use cloister_management_api::{AppCertificate, CertificateIssuer, CertificateSubject};
use cloister_ra_tls::{CarriedEvidence, CertificateEvidence};
use sha2::{Digest, Sha256};
use x509_parser::oid_registry::OidRegistry;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Name};
use x509_parser::x509::AttributeTypeAndValue;

/// Most certificates of a chain that are shown.
const MAX_CERTIFICATES: usize = 8;
/// Longest PEM text that is read, in bytes.
const MAX_CHAIN_BYTES: usize = 512 * 1024;
/// Most alternative names of one certificate that are shown.
const MAX_NAMES: usize = 100;

/// The certificates of a PEM chain, as far as they can be read.
pub(super) fn app_certificates(chain: &str) -> Vec<AppCertificate> {
    let chain = chain.get(..chain.len().min(MAX_CHAIN_BYTES)).unwrap_or_default();
    let blocks = Pem::iter_from_buffer(chain.as_bytes()).map_while(Result::ok).take(MAX_CERTIFICATES);
    (0..).zip(blocks).filter_map(|(position, block)| certificate(position, &block.contents)).collect()
}

fn certificate(position: u32, der: &[u8]) -> Option<AppCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let evidence = cloister_ra_tls::inspect(der).ok();
    let validity = certificate.validity();
    Some(AppCertificate {
        subject: subject(certificate.subject()),
        issuer: issuer(certificate.issuer()),
        serial_number: hex::encode(certificate.raw_serial()),
        not_before: time(validity.not_before.timestamp()),
        not_after: time(validity.not_after.timestamp()),
        // Versions are counted from 0 in the certificate.
        version: certificate.version().0.saturating_add(1).to_string(),
        fingerprint: hex::encode(Sha256::digest(der)),
        signature_algorithm: algorithm(&certificate),
        sans: names(&certificate),
        is_ca: certificate.is_ca(),
        position_in_chain: Some(position),
        quote: evidence.as_ref().map(|found| {
            let CarriedEvidence::Tdx { quote, .. } = &found.evidence;
            hex::encode(quote)
        }),
        app_id: evidence.as_ref().and_then(|found| found.app_id).map(|id| id.to_string()),
        cert_usage: evidence.and_then(|CertificateEvidence { usage, .. }| usage),
    })
}

fn first<'a>(mut values: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> Option<String> {
    values.next().and_then(|value| value.as_str().ok()).map(str::to_owned)
}

fn subject(name: &X509Name<'_>) -> CertificateSubject {
    CertificateSubject {
        common_name: first(name.iter_common_name()),
        organization: first(name.iter_organization()),
        country: first(name.iter_country()),
        state: first(name.iter_state_or_province()),
        locality: first(name.iter_locality()),
    }
}

fn issuer(name: &X509Name<'_>) -> CertificateIssuer {
    CertificateIssuer {
        common_name: first(name.iter_common_name()),
        organization: first(name.iter_organization()),
        country: first(name.iter_country()),
    }
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

/// The registered name of the signature's algorithm, or its number.
fn algorithm(certificate: &X509Certificate<'_>) -> String {
    let oid = &certificate.signature_algorithm.algorithm;
    let registry = OidRegistry::default().with_crypto();
    registry.get(oid).map_or_else(|| oid.to_id_string(), |entry| entry.sn().to_owned())
}

fn names(certificate: &X509Certificate<'_>) -> Option<Vec<String>> {
    let names = certificate.subject_alternative_name().ok()??;
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(text) | GeneralName::URI(text) | GeneralName::RFC822Name(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(bytes) => address(bytes),
        _ => None,
    };
    Some(names.value.general_names.iter().filter_map(text).take(MAX_NAMES).collect())
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| std::net::Ipv6Addr::from(v6).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            app_certificates(&text);
            app_certificates(&format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"));
        }
    }

    #[test]
    fn a_chain_of_real_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let now = "2026-11-21T00:00:00Z".parse().unwrap();
        let authority = cloister_fleet_tls::Authority::load_or_create(dir.path(), now).unwrap();
        let names = ["app.example".to_owned(), "10.0.0.1".to_owned()];
        let issued = authority.issue_server(&names, now).unwrap();
        let chain = [issued.certificate, issued.authority].concat();
        let shown = app_certificates(&chain);
        let [leaf, root] = shown.as_slice() else { panic!("{shown:?}") };
        assert_eq!(leaf.sans.as_deref(), Some(["app.example".to_owned(), "10.0.0.1".to_owned()].as_slice()));
        assert_eq!((leaf.position_in_chain, root.position_in_chain), (Some(0), Some(1)));
        assert_eq!((leaf.is_ca, root.is_ca, leaf.version.as_str()), (false, true, "3"));
        assert_eq!(leaf.issuer.common_name, root.subject.common_name);
        assert!(leaf.signature_algorithm.starts_with("ecdsa-with-SHA"), "{}", leaf.signature_algorithm);
        assert_eq!((leaf.fingerprint.len(), leaf.quote.as_ref()), (64, None));
    }
}
