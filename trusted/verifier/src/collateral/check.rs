//! Whether fetched collateral is worth keeping. It is believed only when a quote is verified with it; this
//! keeps a broken answer from being kept for as long as it claims to hold.

use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde::Deserialize;
use x509_parser::pem::Pem;

use super::validity::Validity;
use crate::{Collateral, CollateralError, CollateralKey, Tee};

#[derive(Deserialize)]
struct TcbInfo {
    id: String,
    fmspc: String,
}

#[derive(Deserialize)]
struct QeIdentity {
    id: String,
}

/// The window of `collateral`, if its parts fit `key` and each other.
pub(super) fn check(key: &CollateralKey, collateral: &Collateral) -> Result<Validity, CollateralError> {
    let validity = Validity::of(collateral)?;
    let tcb_info: TcbInfo = serde_json::from_str(&collateral.tcb_info)
        .map_err(|_| malformed("the TCB info names no platforms"))?;
    if !tcb_info.fmspc.eq_ignore_ascii_case(&hex::encode(key.fmspc)) {
        return Err(malformed("the TCB info is of other platforms"));
    }
    let qe_identity: QeIdentity = serde_json::from_str(&collateral.qe_identity)
        .map_err(|_| malformed("the identity of the quoting enclave names none"))?;
    let (tcb_id, qe_id) = match key.tee {
        Tee::Sgx => ("SGX", "QE"),
        Tee::Tdx => ("TDX", "TD_QE"),
    };
    if tcb_info.id != tcb_id {
        return Err(malformed("the TCB info is of another kind of machine"));
    }
    if qe_identity.id != qe_id {
        return Err(malformed("the identity is of another quoting enclave"));
    }
    let signed = [
        ("TCB info", &collateral.tcb_info, &collateral.tcb_info_signature, &collateral.tcb_info_issuer_chain),
        (
            "identity of the quoting enclave",
            &collateral.qe_identity,
            &collateral.qe_identity_signature,
            &collateral.qe_identity_issuer_chain,
        ),
    ];
    for (name, text, signature, chain) in signed {
        if !is_signed(text, signature, chain) {
            return Err(malformed(&format!("the {name} is not signed by the issuer that comes with it")));
        }
    }
    Ok(validity)
}

fn malformed(what: &str) -> CollateralError {
    CollateralError::Malformed(what.to_owned())
}

fn is_signed(text: &str, signature: &[u8], chain: &str) -> bool {
    let signer = Pem::iter_from_buffer(chain.as_bytes()).next().and_then(Result::ok);
    let signer = signer.as_ref().and_then(|pem| pem.parse_x509().ok());
    signer.is_some_and(|signer| {
        let key = signer.public_key().subject_public_key.data.as_ref();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(text.as_bytes(), signature).is_ok()
    })
}
