//! Records of what was verified, and how long one stands for the verifications that follow it.

use cloister_aci::session::{self, Session};
use cloister_aci::{API_VERSION, CanonicalError, canonical};
use serde_json::Value;

use super::finding::Finding;
use super::target::Target;

/// How long a record holds at least, in seconds, unless what was proven ends before.
const PERIOD: u64 = 3600;
/// How long before its end a record is replaced, in seconds: long answers end while theirs still holds.
const SLACK: u64 = 600;

/// A session record with its id.
#[derive(Debug)]
pub struct Kept {
    /// 64 hex digits, the hash of the record.
    pub id: String,
    /// The record.
    pub record: Session,
    /// The one model that it is about, by the upstream's name; `None` is all.
    pub model: Option<String>,
    /// The record in its canonical form.
    pub document: Vec<u8>,
}

impl Kept {
    /// The record of a finding that was made at `now`, seconds since the Unix epoch.
    pub(super) fn new(target: &Target, finding: &Finding, now: u64) -> Result<Self, CanonicalError> {
        let period = PERIOD.max(target.lifetime.saturating_add(SLACK));
        let expires_at = now.saturating_add(period).min(finding.not_after.unwrap_or(u64::MAX));
        let record = Session {
            api_version: API_VERSION.to_owned(),
            channel_binding: finding.pins.bindings(&target.origin),
            claims: finding.claims.clone(),
            endpoint: Some(target.origin.clone()),
            established_at: now,
            evidence: finding.evidence.clone(),
            expires_at,
            identity: finding.identity.clone(),
            provider: Some(target.name.clone()),
            upstream_name: target.name.clone(),
            verifier_id: finding.verifier_id.clone(),
        };
        let document = record.document()?;
        let id = session::id(&document)?;
        let model = target.model().map(str::to_owned);
        Ok(Self { id, record, model, document: canonical(&document)? })
    }

    /// Whether the record says of a later finding what a new one would: the same identity, binding and claims,
    /// for long enough. Evidence differs each time, because it covers a nonce; the record keeps that of its own.
    pub(super) fn says(&self, target: &Target, finding: &Finding, now: u64) -> bool {
        let record = &self.record;
        let needed = now
            .saturating_add(target.lifetime.saturating_add(SLACK))
            .min(finding.not_after.unwrap_or(u64::MAX));
        (record.established_at..=record.expires_at).contains(&now)
            && record.expires_at >= needed
            && finding.not_after.is_none_or(|end| record.expires_at <= end)
            && record.verifier_id == finding.verifier_id
            && record.identity == finding.identity
            && record.claims == finding.claims
            && record.channel_binding == finding.pins.bindings(&target.origin)
    }

    /// The record as lists show it: with its id, without the evidence itself.
    #[must_use]
    pub fn abbreviated(&self) -> Value {
        let mut record = self.record.document().unwrap_or_default();
        if let Some(evidence) = record.get_mut("evidence").and_then(Value::as_object_mut) {
            evidence.remove("data");
        }
        if let Some(record) = record.as_object_mut() {
            record.insert("session_id".to_owned(), Value::from(self.id.as_str()));
        }
        record
    }
}
