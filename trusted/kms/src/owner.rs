//! An owner of an application in tests: what `ssh-keygen -Y sign` would do, without files.

use cloister_kms_api::approvals::{Action, ApprovalStatement, Approvals, NAMESPACE, OwnerKey, Owners};
use ed25519_dalek::{Signer as _, SigningKey};
use ssh_key::public::{Ed25519PublicKey, KeyData};
use ssh_key::{Algorithm, HashAlg, LineEnding, PublicKey, Signature, SshSig};

pub(crate) struct Owner(SigningKey);

impl Owner {
    pub(crate) fn new(number: u8) -> Self {
        Self(SigningKey::from_bytes(&[number + 1; 32]))
    }

    fn data(&self) -> KeyData {
        KeyData::Ed25519(Ed25519PublicKey(self.0.verifying_key().to_bytes()))
    }

    pub(crate) fn key(&self) -> OwnerKey {
        PublicKey::from(self.data()).to_openssh().unwrap().parse().unwrap()
    }

    pub(crate) fn sign(&self, statement: &ApprovalStatement) -> String {
        let text = statement.to_string();
        let signed = SshSig::signed_data(NAMESPACE, HashAlg::Sha512, text.as_bytes()).unwrap();
        let signature = Signature::new(Algorithm::Ed25519, self.0.sign(&signed).to_vec()).unwrap();
        let signature = SshSig::new(self.data(), NAMESPACE, HashAlg::Sha512, signature).unwrap();
        signature.to_pem(LineEnding::LF).unwrap()
    }
}

/// `threshold` of these.
pub(crate) fn owners(threshold: u32, numbers: &[u8]) -> Owners {
    Owners::new(threshold, numbers.iter().map(|number| Owner::new(*number).key()).collect()).unwrap()
}

/// What these sign.
pub(crate) fn approvals(
    app_id: cloister_app_compose::AppId,
    action: Action,
    serial: u64,
    signers: &[u8],
) -> Approvals {
    let statement = ApprovalStatement { app_id, action, serial };
    let signatures = signers.iter().map(|number| Owner::new(*number).sign(&statement)).collect();
    Approvals { serial, signatures }
}
