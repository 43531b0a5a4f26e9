//! What the KMS and its callers agree on: calls, messages, errors (platform reference, section 10; spec 4.2
//! and 7.2).
//!
//! Every call is HTTP, `POST <prefix><method>?json` with a JSON body, bytes in lower-case hex. There are
//! three places to call:
//!
//! | Place | Transport | Methods |
//! |---|---|---|
//! | onboarding, until it is finished | plain HTTP on the KMS's port | [`method::BOOTSTRAP`], [`method::ONBOARD`], [`method::ATTESTATION_INFO`], `GET /finish` |
//! | release | TLS 1.3, both sides with evidence, on the KMS's port | [`method::META`], [`method::APP_KEY`], [`method::KEY`], [`method::KMS_KEY`], [`method::MACHINE`], [`method::SIGN_CERT`], [`method::CONFIRM_RESEAL`], [`method::ENV_PUBLIC_KEY`], [`method::APP_OWNERS`] |
//! | directory | TLS 1.3, the KMS with evidence, callers anonymous, on a port of its own | [`method::META`], [`method::ENV_PUBLIC_KEY`], [`method::APP_OWNERS`], the release log below `/log/`, and with the administrator's token as bearer everything of [`admin`] |
//!
//! Nothing secret leaves the directory. The port for releases sees no caller whose evidence was not
//! verified: one without good evidence gets [`KmsErrorCode::Unauthorized`] from the door, whatever it asks.

pub mod admin;
pub mod approvals;
mod bytes;
mod error;
pub mod log;
mod messages;
pub mod statements;

pub use bytes::{Hex, SecretHex};
pub use error::{KmsError, KmsErrorCode};
pub use messages::{
    AppKeyRequest, AppKeyResponse, AppOwnersRequest, AppOwnersResponse, AttestationInfo, BootstrapInfo,
    BootstrapRequest, BootstrapResponse, ConfirmResealRequest, EnvPublicKeyRequest, EnvPublicKeyResponse,
    FormerKeys, KeyRequest, KmsKeyRequest, KmsKeyResponse, MachineResponse, Meta, OnboardRequest,
    OnboardResponse, OwnedApp, RootInfo, RootKeys, SignCertRequest, SignCertResponse,
};

/// Port on which a KMS is onboarded and releases keys, unless configured otherwise (spec 4.2).
pub const DEFAULT_PORT: u16 = 12001;

/// Longest name of a key, in bytes.
pub const MAX_KEY_NAME_BYTES: usize = 256;

/// Longest body of a request, in bytes. Descriptions of machines and certificate requests are the largest
/// parts.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// Version of the calls, as the platform counts.
pub const API_VERSION: u32 = 1;

/// Paths of the methods.
pub mod method {
    /// What the KMS is; no body. Answers [`Meta`](crate::Meta).
    pub const META: &str = "/prpc/KMS.GetMeta";
    /// Keys of the calling application: [`AppKeyRequest`](crate::AppKeyRequest) →
    /// [`AppKeyResponse`](crate::AppKeyResponse). Only for a machine that is still booting.
    pub const APP_KEY: &str = "/prpc/KMS.GetAppKey";
    /// `getKey(name)` of spec 4.2: [`KeyRequest`](crate::KeyRequest) → 32 raw bytes,
    /// `application/octet-stream`.
    pub const KEY: &str = "/prpc/KMS.GetKey";
    /// All roots, for a further KMS: [`KmsKeyRequest`](crate::KmsKeyRequest) →
    /// [`KmsKeyResponse`](crate::KmsKeyResponse).
    pub const KMS_KEY: &str = "/prpc/KMS.GetKmsKey";
    /// Which machine this KMS runs in, for another one that is to take its roots: `{}` →
    /// [`MachineResponse`](crate::MachineResponse).
    pub const MACHINE: &str = "/prpc/KMS.GetMachine";
    /// A certificate for the calling application: [`SignCertRequest`](crate::SignCertRequest) →
    /// [`SignCertResponse`](crate::SignCertResponse).
    pub const SIGN_CERT: &str = "/prpc/KMS.SignCert";
    /// The calling CVM holds nothing under older roots any more:
    /// [`ConfirmResealRequest`](crate::ConfirmResealRequest) → `{}`.
    pub const CONFIRM_RESEAL: &str = "/prpc/KMS.ConfirmReseal";
    /// Key to seal an application's environment to: [`EnvPublicKeyRequest`](crate::EnvPublicKeyRequest) →
    /// [`EnvPublicKeyResponse`](crate::EnvPublicKeyResponse).
    pub const ENV_PUBLIC_KEY: &str = "/prpc/KMS.GetAppEnvEncryptPubKey";
    /// Who owns an application: [`AppOwnersRequest`](crate::AppOwnersRequest) →
    /// [`AppOwnersResponse`](crate::AppOwnersResponse).
    pub const APP_OWNERS: &str = "/prpc/KMS.GetAppOwners";
    /// Makes the first root: [`BootstrapRequest`](crate::BootstrapRequest) →
    /// [`BootstrapResponse`](crate::BootstrapResponse).
    pub const BOOTSTRAP: &str = "/prpc/Onboard.Bootstrap";
    /// Takes the roots of a running KMS: [`OnboardRequest`](crate::OnboardRequest) →
    /// [`OnboardResponse`](crate::OnboardResponse).
    pub const ONBOARD: &str = "/prpc/Onboard.Onboard";
    /// What this machine would be to others: no body → [`AttestationInfo`](crate::AttestationInfo).
    pub const ATTESTATION_INFO: &str = "/prpc/Onboard.GetAttestationInfo";
    /// Ends onboarding; `GET`, answers `OK`.
    pub const FINISH: &str = "/finish";
}
