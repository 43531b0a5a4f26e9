use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

use super::PeerIdentity;

/// Most peers that are remembered.
const MAX_PEERS: usize = 1024;
/// Longest that a peer is remembered: news about its platform count after this time.
const MEMORY: SignedDuration = SignedDuration::from_mins(5);

/// SHA-256 over a whole chain, each certificate after its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ChainHash([u8; 32]);

impl ChainHash {
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Self {
        let mut hasher = Sha256::new();
        for certificate in chain {
            hasher.update(certificate.len().to_le_bytes());
            hasher.update(certificate);
        }
        Self(hasher.finalize().into())
    }
}

struct Remembered {
    peer: Arc<PeerIdentity>,
    from: Timestamp,
    until: Timestamp,
}

/// Peers that were verified a short while ago, so that the next handshake with one of them does not
/// verify again. Failures are not kept.
#[derive(Default)]
pub(super) struct VerifiedPeers(Mutex<HashMap<ChainHash, Remembered>>);

impl VerifiedPeers {
    pub(super) fn get(&self, chain: ChainHash, now: Timestamp) -> Option<Arc<PeerIdentity>> {
        let peers = self.0.lock();
        peers
            .get(&chain)
            .filter(|known| known.from <= now && now <= known.until)
            .map(|known| Arc::clone(&known.peer))
    }

    /// Remembers a peer until its evidence or certificate expires, at most for [`MEMORY`].
    pub(super) fn insert(&self, chain: ChainHash, peer: Arc<PeerIdentity>, now: Timestamp) {
        let until = peer.valid_until.min(now.saturating_add(MEMORY).unwrap_or(now));
        let mut peers = self.0.lock();
        if peers.len() >= MAX_PEERS {
            peers.retain(|_, known| now <= known.until);
        }
        if peers.len() >= MAX_PEERS {
            let soonest = peers.iter().min_by_key(|(_, known)| known.until).map(|(chain, _)| *chain);
            soonest.and_then(|chain| peers.remove(&chain));
        }
        peers.insert(chain, Remembered { peer, from: now, until });
    }
}
