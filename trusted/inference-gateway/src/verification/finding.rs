//! What a verification found, whoever made it.

use cloister_aci::session::{ChannelBinding, Claims, Evidence, TlsSpkiKind};
use serde_json::Value;

/// What a verification found. A finding without pins does not exist: nothing would tie requests to it.
#[derive(Debug)]
pub(super) struct Finding {
    /// How it was verified, such as `aci-service/v2`.
    pub(super) verifier_id: String,
    /// Who the upstream proved to be.
    pub(super) identity: Option<Value>,
    /// What ties requests to it.
    pub(super) pins: Pins,
    /// What was found.
    pub(super) claims: Claims,
    /// What was seen.
    pub(super) evidence: Evidence,
    /// When what was proven ends by itself, seconds since the Unix epoch.
    pub(super) not_after: Option<u64>,
}

/// Most keys of one channel.
pub(super) const MAX_PINS: usize = 64;

/// Keys that a TLS connection may end at: sorted, each once, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pins(Vec<[u8; 32]>);

impl Pins {
    /// From digests in hex. `None` if there is none, more than [`MAX_PINS`], or one that cannot be read: what is
    /// not understood is not left out.
    pub(super) fn from_hex<'a>(digests: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut pins = Vec::new();
        for digest in digests.take(MAX_PINS + 1) {
            let mut pin = [0; 32];
            hex::decode_to_slice(digest, &mut pin).ok()?;
            pins.push(pin);
        }
        pins.sort_unstable();
        pins.dedup();
        (1..=MAX_PINS).contains(&pins.len()).then_some(Self(pins))
    }

    pub(super) fn to_vec(&self) -> Vec<[u8; 32]> {
        self.0.clone()
    }

    /// As they stand in a session.
    pub(super) fn bindings(&self, origin: &str) -> Vec<ChannelBinding> {
        let binding = |pin: &[u8; 32]| ChannelBinding::TlsSpki {
            origin: origin.to_owned(),
            spki_sha256: hex::encode(pin),
            kind: TlsSpkiKind::TlsSpkiSha256,
        };
        self.0.iter().map(binding).collect()
    }
}
