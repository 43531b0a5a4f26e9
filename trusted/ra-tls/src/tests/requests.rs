use proptest::prelude::{any, prop_assert, proptest};

use super::lab::{APP, Lab, minted};
use crate::{AttestedKey, CertificateRequest, InvalidRequest, RequestedCertificate};

fn wanted() -> RequestedCertificate {
    RequestedCertificate {
        subject: "app.example".to_owned(),
        alternative_names: vec!["app.example".to_owned()],
        server: true,
        client: true,
        with_evidence: true,
        not_after: Some(1_800_000_000),
        ..RequestedCertificate::default()
    }
}

#[test]
fn a_public_peers_request_is_read_and_written_again_byte_by_byte() {
    let Some(folder) = minted() else { return };
    let bytes = std::fs::read(folder.join("csr_v2.scale.bin")).unwrap();
    let signature = std::fs::read(folder.join("csr_v2.sig.der")).unwrap();
    let request = CertificateRequest::decode(&bytes, &signature).unwrap();
    let expected = RequestedCertificate { not_after: None, ..wanted() };
    assert_eq!(*request.certificate(), expected);
    assert_eq!(request.attestation(), std::fs::read(folder.join("ratls_attestation_v0.scale.bin")).unwrap());
    assert_eq!(request.encode(), bytes);
    request.evidence().unwrap();
    for at in (0..bytes.len()).step_by(7) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(CertificateRequest::decode(&changed, &signature).is_err(), "byte {at}");
    }
}

#[test]
fn a_request_is_bound_to_its_key_and_its_evidence_verifies() {
    let lab = Lab::new();
    let key = AttestedKey::generate().unwrap();
    let attestation = lab.evidence(&key, APP).attestation.unwrap();
    let (bytes, signature) = CertificateRequest::new(&key, wanted(), attestation.clone()).sign(&key).unwrap();
    let request = CertificateRequest::decode(&bytes, &signature).unwrap();
    assert_eq!((request.certificate(), request.public_key()), (&wanted(), key.public_key()));
    let peers = crate::PeerVerifier::new(lab.verifier(), crate::PeerPolicy::default());
    let peer = peers.evidence(request.public_key(), &request.evidence().unwrap()).unwrap();
    assert_eq!(peer.app.app_id, Some(super::lab::app(APP)));

    let other = AttestedKey::generate().unwrap();
    let (_, by_other) = CertificateRequest::new(&key, wanted(), attestation.clone()).sign(&other).unwrap();
    assert!(matches!(CertificateRequest::decode(&bytes, &by_other), Err(InvalidRequest::Signature)));
    // Evidence of another key in a request that is well signed.
    let (bytes, signature) = CertificateRequest::new(&other, wanted(), attestation).sign(&other).unwrap();
    let request = CertificateRequest::decode(&bytes, &signature).unwrap();
    let refused = peers.evidence(request.public_key(), &request.evidence().unwrap());
    assert!(matches!(refused, Err(crate::PeerError::OtherKey)));
}

#[test]
fn requests_for_too_much_are_refused() {
    let key = AttestedKey::generate().unwrap();
    let decode = |wanted| {
        let (bytes, signature) = CertificateRequest::new(&key, wanted, vec![0]).sign(&key).unwrap();
        CertificateRequest::decode(&bytes, &signature)
    };
    decode(wanted()).unwrap();
    let many = RequestedCertificate { alternative_names: vec!["a".to_owned(); 65], ..wanted() };
    assert!(matches!(decode(many), Err(InvalidRequest::Names)));
    let long = RequestedCertificate { subject: "a".repeat(257), ..wanted() };
    assert!(matches!(decode(long), Err(InvalidRequest::Names)));
    assert!(matches!(CertificateRequest::decode(&vec![0; 257 << 10], &[]), Err(InvalidRequest::Malformed)));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        prop_assert!(CertificateRequest::decode(&bytes, &bytes).is_err());
        let headed = [b"\x44please sign cert:".as_slice(), &bytes].concat();
        prop_assert!(CertificateRequest::decode(&headed, &bytes).is_err());
    }
}
