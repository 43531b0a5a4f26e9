//! The methods, by their names (platform reference, sections 7.3 to 7.6).

use serde_json::{Value, json};

use super::answer::ApiError;
use super::message::Message;
use super::{keys, quotes};
use crate::attestation::Attestation;

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Attest,
    Attestation,
    DeriveK256Key,
    DeriveKey,
    EmitEvent,
    GetAttestation,
    GetAttestationForAppKey,
    GetKey,
    GetQuote,
    GetTlsKey,
    Info,
    RawQuote,
    Sign,
    TdxQuote,
    Verify,
    Version,
}

/// Names as they stand in paths.
const METHODS: [(&str, Method); 16] = [
    ("Attest", Method::Attest),
    ("attestation", Method::Attestation),
    ("DeriveK256Key", Method::DeriveK256Key),
    ("DeriveKey", Method::DeriveKey),
    ("EmitEvent", Method::EmitEvent),
    ("GetAttestation", Method::GetAttestation),
    ("GetAttestationForAppKey", Method::GetAttestationForAppKey),
    ("GetKey", Method::GetKey),
    ("GetQuote", Method::GetQuote),
    ("GetTlsKey", Method::GetTlsKey),
    ("Info", Method::Info),
    ("RawQuote", Method::RawQuote),
    ("Sign", Method::Sign),
    ("TdxQuote", Method::TdxQuote),
    ("Verify", Method::Verify),
    ("Version", Method::Version),
];

/// What may stand before a name: the legacy interface and the frozen one, then the service.
const PREFIXES: [&str; 2] = ["prpc/", "v0/"];
const SERVICES: [&str; 3] = ["DstackGuest.", "Tappd.", "Worker."];

impl Method {
    /// The method at a path of the guest's sockets.
    pub(crate) fn at(path: &str) -> Result<Self, ApiError> {
        let mut name = path.trim_start_matches('/');
        for prefix in PREFIXES {
            name = name.strip_prefix(prefix).unwrap_or(name);
        }
        let asked = name;
        if let Some(method) = SERVICES.iter().find_map(|service| asked.strip_prefix(service)) {
            name = method;
        }
        let found = METHODS.iter().find(|(known, _)| *known == name).map(|(_, method)| *method);
        found.ok_or_else(|| ApiError::Unknown(asked.chars().take(100).collect()))
    }

    /// Does it. `plainly` is a GET that did not ask for the JSON of the SDKs.
    pub(crate) async fn call(
        self,
        attestation: &Attestation,
        message: &Message,
        plainly: bool,
    ) -> Result<Value, ApiError> {
        match self {
            Self::Attest => quotes::attest(attestation, message).await,
            Self::Attestation => quotes::attestation(attestation, message).await,
            Self::DeriveK256Key => keys::derive_k256_key(attestation, message),
            Self::DeriveKey => keys::derive_key(attestation, message).await,
            Self::EmitEvent => quotes::emit_event(attestation, message).await,
            Self::GetAttestation => quotes::get_attestation(attestation, message).await,
            Self::GetAttestationForAppKey => keys::attestation_for_app_key(attestation, message).await,
            Self::GetKey => keys::get_key(attestation, message),
            Self::GetQuote if plainly => quotes::get_quote_plainly(attestation, message).await,
            Self::GetQuote => quotes::get_quote(attestation, message).await,
            Self::GetTlsKey => keys::get_tls_key(attestation, message).await,
            Self::Info => Ok(attestation.info(false).await),
            Self::RawQuote => quotes::raw_quote(attestation, message).await,
            Self::Sign => keys::sign(attestation, message),
            Self::TdxQuote => quotes::tdx_quote(attestation, message).await,
            Self::Verify => keys::verify(message),
            Self::Version => Ok(version()),
        }
    }
}

/// Which agent this is.
pub(crate) fn version() -> Value {
    json!({ "version": env!("CARGO_PKG_VERSION"), "rev": "" })
}
