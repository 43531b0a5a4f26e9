//! Longer requests.

use cloister_development_tee::Platform;
use cloister_evidence::{PlatformEvidence, VersionedAttestation};
use cloister_kms_api::Hex;
use cloister_ra_tls::{AttestedKey, CertificateRequest, RequestedCertificate};
use serde_json::{Value, json};

use super::lab::Machine;

/// A machine asks for a certificate for a new key.
pub(super) fn certificate(machine: &Machine, platform: &Platform) -> (AttestedKey, Value) {
    let key = AttestedKey::generate().unwrap();
    let evidence = machine.evidence(platform, &key);
    let log: Vec<_> = serde_json::from_str(&evidence.event_log).unwrap();
    let attestation = VersionedAttestation {
        evidence: PlatformEvidence::Tdx { quote: evidence.quote.unwrap(), event_log: log },
        runtime_events: Vec::new(),
        report_data: key.report_data(),
        config: String::new(),
    };
    let wanted = RequestedCertificate {
        subject: "shop".to_owned(),
        alternative_names: vec!["shop.example".to_owned()],
        server: true,
        with_evidence: true,
        ..Default::default()
    };
    let request = CertificateRequest::new(&key, wanted, attestation.encode().unwrap());
    let (csr, signature) = request.sign(&key).unwrap();
    let vm_config = machine.vm_config();
    (key, json!({"api_version": 2, "csr": Hex(csr), "signature": Hex(signature), "vm_config": vm_config}))
}
