//! The machine of a service, by the evidence in the certificate that it shows.

use cloister_app_compose::{AppId, ComposeHash, InstanceId};
use cloister_evidence::Aggregates;
use cloister_ra_tls::{InvalidCertificate, PeerError, PeerIdentity, PeerPolicy, PeerVerifier, inspect};
use cloister_verifier::{Policy, Verifier};

/// What verified evidence says about a service's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmsMachine {
    /// SHA-256 of the platform's provisioning id.
    pub device_id: [u8; 32],
    /// Aggregate of all registers.
    pub mr_aggregated: [u8; 32],
    /// Image, as the key provider of the machine knew it.
    pub os_image_hash: Option<[u8; 32]>,
    /// Instance.
    pub instance_id: Option<InstanceId>,
    /// Application.
    pub app_id: Option<AppId>,
    /// Aggregate of the machine's own key provider, if it has one.
    pub key_provider: Option<[u8; 32]>,
    /// Compose document.
    pub compose_hash: Option<ComposeHash>,
}

/// Why a machine is not known.
#[derive(Debug, thiserror::Error)]
pub enum KmsMachineError {
    /// The certificate says nothing.
    #[error(transparent)]
    Certificate(#[from] InvalidCertificate),
    /// The evidence does not hold.
    #[error(transparent)]
    Evidence(#[from] PeerError),
    /// It took too long, or the process has no room for it.
    #[error("the evidence could not be verified in time")]
    Busy,
}

impl KmsMachine {
    /// Verifies the evidence in a certificate (DER). Waits for collateral, so it gets a thread of its own.
    pub(crate) async fn of(certificate: Vec<u8>, verifier: &Verifier) -> Result<Self, KmsMachineError> {
        let verifier = PeerVerifier::new(verifier.clone(), PeerPolicy::any_app(Policy::default()));
        let outcome = tokio::task::spawn_blocking(move || {
            let shown = inspect(&certificate)?;
            Ok(verifier.evidence(&shown.public_key, &shown.evidence)?.into())
        });
        match tokio::time::timeout(super::TIME_TO_VERIFY, outcome).await {
            Ok(Ok(machine)) => machine,
            _ => Err(KmsMachineError::Busy),
        }
    }
}

impl From<PeerIdentity> for KmsMachine {
    fn from(peer: PeerIdentity) -> Self {
        let key_provider = peer.app.key_provider_payload.as_deref();
        let aggregates = Aggregates::new(&peer.registers, &peer.launch, key_provider);
        Self {
            device_id: peer.device_id,
            mr_aggregated: aggregates.mr_aggregated,
            os_image_hash: peer.app.os_image_hash.map(|hash| *hash.as_bytes()),
            instance_id: peer.app.instance_id,
            app_id: peer.app.app_id,
            key_provider: key_provider.map(|_| aggregates.mr_key_provider),
            compose_hash: peer.app.compose_hash,
        }
    }
}
