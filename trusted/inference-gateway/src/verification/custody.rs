//! Whose the keys of a keyset are: a KMS vouches that they are the measured application's.
//!
//! A chain of signatures is public, and proves no possession: whoever has read it can show it. It counts because the
//! evidence that it is shown with is fresh, covers the keyset, and is that of a machine whose boot is accepted and
//! which measured that this KMS gave it the application's keys ([`machine`](super::machine)).

use cloister_aci::Keyset;
use cloister_aci::RECEIPT_ED25519;
use cloister_app_compose::AppId;
use cloister_kms_api::statements::{K256Public, verify_key_chain};
use serde::Deserialize;

use super::reason::Reason;

/// Purpose that receipt keys are derived for.
const RECEIPT_PURPOSE: &str = "aci.receipt.ed25519.v1";
const PROVIDER: &str = "dstack-kms";
/// Most keys that are looked at.
const MAX_KEYS: usize = 32;

/// What a report says of its keys.
#[derive(Debug, Deserialize)]
pub(super) struct Custody {
    provider: String,
    keys: Vec<CustodyKey>,
}

#[derive(Debug, Deserialize)]
struct CustodyKey {
    purpose: String,
    algo: String,
    /// The key of the keyset, hex.
    public_key: String,
    /// The key that the chain is said to be over, hex.
    #[serde(default)]
    kms_public_key: Option<String>,
    /// By the application's key, then by the root; hex.
    signature_chain: Vec<String>,
}

/// The root that vouches for every receipt key of a keyset. Each has to be the measured application's, under one of
/// the accepted roots, which are compressed secp256k1 keys in hex.
pub(super) fn root_of(
    custody: &Custody,
    keyset: &Keyset,
    app_id: &AppId,
    accepted: &[String],
) -> Result<String, Reason> {
    if custody.provider != PROVIDER {
        return Err("the keys come from no KMS that is known".into());
    }
    let mut receipt_keys =
        keyset.receipt_signing_keys.iter().filter(|key| key.algo == RECEIPT_ED25519).peekable();
    if receipt_keys.peek().is_none() {
        return Err("the keyset has no receipt key of a known algorithm".into());
    }
    let mut found = None;
    for key in receipt_keys.take(MAX_KEYS + 1) {
        let root = custody
            .keys
            .iter()
            .take(MAX_KEYS)
            .filter(|of| of.algo == key.algo && of.public_key.eq_ignore_ascii_case(&key.public_key))
            .filter(|of| of.purpose == RECEIPT_PURPOSE)
            .find_map(|of| of.root(app_id, accepted))
            .ok_or_else(|| Reason::from("no accepted KMS root vouches for the receipt key"))?;
        found.get_or_insert(root);
    }
    found.ok_or_else(|| "no accepted KMS root vouches for the receipt key".into())
}

impl CustodyKey {
    /// The accepted root at the end of the chain.
    fn root(&self, app_id: &AppId, accepted: &[String]) -> Option<String> {
        let chain: Vec<Vec<u8>> =
            self.signature_chain.iter().take(3).map(|text| bytes(text)).collect::<Option<_>>()?;
        let own = bytes(&self.public_key)?;
        // A chain over another key, be it of the same secret, says nothing of this one: nothing ties the two.
        if self.kms_public_key.as_ref().is_some_and(|key| bytes(key).as_ref() != Some(&own)) {
            return None;
        }
        let is_root = |root: &K256Public| verify_key_chain(app_id, &self.purpose, &own, &chain, root).is_ok();
        accepted
            .iter()
            .find(|root| bytes(root).and_then(|root| root.try_into().ok()).is_some_and(|root| is_root(&root)))
            .cloned()
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    hex::decode(text.strip_prefix("0x").unwrap_or(text)).ok()
}
