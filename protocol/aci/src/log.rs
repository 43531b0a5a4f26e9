//! The public log of receipts: what a record of it says, and what a gateway shows to prove one.
//!
//! The log is a Merkle tree of RFC 6962 whose leaves are the texts of [`Record`]s, with C2SP checkpoints; this crate says
//! nothing of trees and signatures.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{canonical, sha256};
use crate::object::Object;

/// Room for a record, in bytes.
const USUAL_BYTES: usize = 256;

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// `sha256:` and the hash of the receipt's id, hex: who does not have the receipt learns no id.
    pub receipt_id_sha256: String,
    /// The same of the signed document in canonical form, which is how it is served.
    pub receipt_sha256: String,
    /// When it was issued, in seconds since the Unix epoch.
    pub served_at: u64,
}

impl Record {
    /// The record of a receipt by its id and its canonical bytes.
    #[must_use]
    pub fn new(id: &[u8], document: &[u8], served_at: u64) -> Self {
        Self { receipt_id_sha256: sha256(id), receipt_sha256: sha256(document), served_at }
    }

    /// The record that a receipt has to have. `None` for a document that has no canonical form, or not the members
    /// that the record is made of.
    #[must_use]
    pub fn of(document: &Value) -> Option<Self> {
        let id = document.get("receipt_id")?.as_str()?;
        let served_at = document.get("served_at")?.as_u64()?;
        Some(Self::new(id.as_bytes(), &canonical(document).ok()?, served_at))
    }

    /// The exact text of its leaf, in canonical form.
    #[must_use]
    pub fn text(&self) -> String {
        // Texts and a number: this cannot fail.
        self.write().ok().and_then(|json| String::from_utf8(json).ok()).unwrap_or_default()
    }

    fn write(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = Vec::with_capacity(USUAL_BYTES);
        let mut record = Object::begin(&mut json);
        record.text("receipt_id_sha256", &self.receipt_id_sha256)?;
        record.text("receipt_sha256", &self.receipt_sha256)?;
        record.value("served_at", &self.served_at)?.end();
        Ok(json)
    }
}

/// Proof that a receipt is in the log (`GET /v1/aci/receipts/{id}/inclusion`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inclusion {
    /// Its index.
    pub index: u64,
    /// The exact text of its leaf.
    pub record: String,
    /// A signed checkpoint: its second line is the size of the tree that the proof is for.
    pub checkpoint: String,
    /// Hashes of the proof in the order of RFC 6962, 64 hex digits each.
    pub hashes: Vec<String>,
}

/// Hashes of a Merkle proof in the order of RFC 6962, 64 hex digits each (`GET /v1/aci/log/inclusion` and
/// `/v1/aci/log/consistency`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The hashes.
    pub hashes: Vec<String>,
}

/// The hashes of a proof; `None` if one is not 64 hex digits.
#[must_use]
pub fn hashes(texts: &[String]) -> Option<Vec<[u8; 32]>> {
    texts.iter().map(|text| hex::decode(text).ok()?.try_into().ok()).collect()
}
