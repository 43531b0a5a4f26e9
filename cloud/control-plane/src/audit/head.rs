//! Ends of chains, signed: a tenant who keeps one can prove later that what came before was changed.

use cloister_management_api::{AUDIT_VERSION, AuditHead, WorkspaceId};
use jiff::Timestamp;
use ring::signature::{Ed25519KeyPair, KeyPair};

/// The installation's key for heads.
pub(crate) struct HeadKey(Ed25519KeyPair);

/// Bytes that are no key.
#[derive(Debug, thiserror::Error)]
#[error("the key that signs the heads of audit chains cannot be used")]
pub(crate) struct InvalidHeadKey;

impl HeadKey {
    /// The key with this secret.
    pub(crate) fn new(secret: &[u8; 32]) -> Result<Self, InvalidHeadKey> {
        Ed25519KeyPair::from_seed_unchecked(secret).map(Self).map_err(|_| InvalidHeadKey)
    }

    /// Signs where a chain ends.
    pub(crate) fn sign(
        &self,
        workspace: Option<WorkspaceId>,
        (sequence, hash): (i64, String),
        time: Timestamp,
    ) -> AuditHead {
        let key = hex::encode(self.0.public_key());
        let signature = String::new();
        let mut head = AuditHead { version: AUDIT_VERSION, workspace, sequence, hash, time, key, signature };
        head.signature = hex::encode(self.0.sign(&head.message()));
        head
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    #[test]
    fn the_signature_is_over_everything_else() {
        let key = HeadKey::new(&[7; 32]).unwrap();
        let head = key.sign(Some(WorkspaceId(3)), (5, "ab".repeat(32)), Timestamp::UNIX_EPOCH);
        let holds = |head: &AuditHead| {
            let public = UnparsedPublicKey::new(&ED25519, hex::decode(&head.key).unwrap());
            public.verify(&head.message(), &hex::decode(&head.signature).unwrap()).is_ok()
        };
        assert!(holds(&head));
        for changed in [
            AuditHead { sequence: 6, ..head.clone() },
            AuditHead { workspace: None, ..head.clone() },
            AuditHead { hash: "ac".repeat(32), ..head.clone() },
            AuditHead { time: Timestamp::from_millisecond(1).unwrap(), ..head.clone() },
        ] {
            assert!(!holds(&changed), "{changed:?}");
        }
    }
}
