//! The secrets of a gateway: released to the measured application by a key management service, or made at the start.

use std::fmt;

use cloister_aci::custody::{self, Custody, CustodyKey};
use cloister_aci::e2ee::{E2eeError, SecretKey, Suite};
use cloister_aci::{PublicKey, RECEIPT_ED25519};
use cloister_agent_client::{Agent, AgentError, KeyName};
use k256::elliptic_curve::sec1::ToSec1Point as _;
use zeroize::Zeroizing;

use super::legacy::Signers;
use super::signer::ReceiptKey;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The guest agent gives none.
    #[error("the guest agent gives no keys: {0}")]
    Agent(#[from] AgentError),
    /// It gives bytes that are no key; practically impossible.
    #[error("a key cannot be used")]
    Unusable(#[from] E2eeError),
    /// The same of the key that signs receipts.
    #[error("the key that signs receipts cannot be used")]
    Signing,
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
}

/// A key that the gateway has.
struct Role {
    name: KeyName,
    /// What stands behind the provider in the key's id.
    id: &'static str,
    part: &'static str,
    algo: &'static str,
}

const fn role(
    path: &'static str,
    purpose: &'static str,
    id: &'static str,
    part: &'static str,
    algo: &'static str,
) -> Role {
    // The secret is the same for every algorithm; what is vouched for is the public key of this one.
    let algorithm = match algo.as_bytes() {
        b"ed25519" => "ed25519",
        _ => "secp256k1",
    };
    Role { name: KeyName { path, purpose, algorithm }, id, part, algo }
}

const RECEIPT: Role = role(
    "aci/receipt-ed25519/v1",
    "aci.receipt.ed25519.v1",
    "receipt-ed25519-v1",
    "receipt",
    RECEIPT_ED25519,
);
const X25519: Role =
    role("aci/e2ee-x25519/v1", "aci.e2ee.x25519.v1", "e2ee-x25519-v1", "e2ee", Suite::X25519.algo());
const SECP256K1: Role = role("aci/e2ee/v1", "aci.e2ee.v1", "e2ee-v1", "e2ee", Suite::Secp256k1.algo());
const LEGACY: Role =
    role("aci/legacy-ed25519/v1", "aci.legacy.ed25519.v1", "legacy-ed25519-v1", "legacy", RECEIPT_ED25519);

/// Begin of the ids of keys that nobody vouches for.
const DEVELOPMENT: &str = "development";

type Secret = Zeroizing<[u8; 32]>;

/// The keys of a gateway. They are the same for as long as it runs.
pub(crate) struct Keys {
    pub(super) receipt: ReceiptKey,
    pub(crate) x25519: SecretKey,
    pub(crate) secp256k1: SecretKey,
    /// Those of older clients.
    pub(crate) legacy: Signers,
    /// Who vouches for them; `None` for keys that were made here.
    pub(super) custody: Option<Custody>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Keys").field("custody", &self.custody).finish_non_exhaustive()
    }
}

impl Keys {
    /// Those of the application that runs here.
    pub(super) async fn of(agent: &Agent) -> Result<Self, KeysError> {
        let mut chains = Vec::new();
        let mut secrets = Vec::new();
        for role in [&RECEIPT, &X25519, &SECP256K1, &LEGACY] {
            let key = agent.key(&role.name).await?;
            chains.push((role, kms_public_key(role, &key.secret)?, key.signature_chain));
            secrets.push(key.secret);
        }
        let [receipt, x25519, secp256k1, legacy] =
            <[Secret; 4]>::try_from(secrets).map_err(|_| E2eeError::PublicKey)?;
        let mut keys = Self::new(&receipt, &x25519, &secp256k1, &legacy)?;
        let entries = chains.into_iter().map(|(role, kms_public_key, signature_chain)| CustodyKey {
            algo: role.algo.to_owned(),
            kms_public_key,
            path: role.name.path.to_owned(),
            public_key: keys.public_key(role),
            purpose: role.name.purpose.to_owned(),
            role: role.part.to_owned(),
            signature_chain,
        });
        keys.custody = Some(Custody { keys: entries.collect(), provider: custody::KMS.to_owned() });
        Ok(keys)
    }

    /// Fresh ones, which nobody vouches for and which end with the process.
    pub(super) fn fresh() -> Result<Self, KeysError> {
        let secret = || {
            let mut bytes = Zeroizing::new([0; 32]);
            getrandom::fill(bytes.as_mut_slice()).map_err(|_| KeysError::NoRandomness)?;
            Ok::<Secret, KeysError>(bytes)
        };
        let [receipt, x25519, secp256k1, legacy] = [secret()?, secret()?, secret()?, secret()?];
        Self::new(&receipt, &x25519, &secp256k1, &legacy)
    }

    fn new(
        receipt: &[u8; 32],
        x25519: &[u8; 32],
        secp256k1: &[u8; 32],
        legacy: &[u8; 32],
    ) -> Result<Self, KeysError> {
        Ok(Self {
            receipt: ReceiptKey::new(receipt)?,
            x25519: SecretKey::new(Suite::X25519, x25519)?,
            secp256k1: SecretKey::new(Suite::Secp256k1, secp256k1)?,
            legacy: Signers::new(secp256k1, legacy)?,
            custody: None,
        })
    }

    /// With the secrets of the published vectors.
    #[cfg(test)]
    pub(crate) fn published() -> Self {
        Self::new(&[2; 32], &[3; 32], &[3; 32], &[5; 32]).unwrap()
    }

    /// Id of the key that signs receipts.
    pub(super) fn receipt_key_id(&self) -> String {
        self.key_id(&RECEIPT)
    }

    /// The entries of a keyset for keys that sign receipts, and for those that clients encrypt to.
    pub(super) fn entries(&self) -> (Vec<PublicKey>, Vec<PublicKey>) {
        (vec![self.entry(&RECEIPT)], vec![self.entry(&X25519), self.entry(&SECP256K1)])
    }

    fn entry(&self, role: &Role) -> PublicKey {
        PublicKey { algo: role.algo.to_owned(), key_id: self.key_id(role), public_key: self.public_key(role) }
    }

    fn key_id(&self, role: &Role) -> String {
        let provider = self.custody.as_ref().map_or(DEVELOPMENT, |custody| &custody.provider);
        format!("{provider}-{}", role.id)
    }

    fn public_key(&self, role: &Role) -> String {
        match role.id {
            id if id == RECEIPT.id => hex::encode(self.receipt.public_key()),
            id if id == X25519.id => hex::encode(self.x25519.public_key()),
            id if id == SECP256K1.id => hex::encode(self.secp256k1.public_key()),
            _ => hex::encode(self.legacy.ed25519_public_key()),
        }
    }
}

/// The public key that the chain vouches for.
fn kms_public_key(role: &Role, secret: &[u8; 32]) -> Result<String, KeysError> {
    if role.name.algorithm == "ed25519" {
        return Ok(hex::encode(ed25519_dalek::SigningKey::from_bytes(secret).verifying_key()));
    }
    let secret = k256::SecretKey::from_slice(secret).map_err(|_| E2eeError::PublicKey)?;
    Ok(hex::encode(secret.public_key().to_sec1_point(true)))
}
