//! Who a peer is, by the evidence in its certificate.

mod cache;
mod chain;
mod error;
mod identity;
mod policy;

use std::fmt;
use std::sync::Arc;

use cloister_verifier::Verifier;
use rustls::CommonState;
use rustls::pki_types::CertificateDer;
use tokio::sync::Semaphore;

use crate::carried::CarriedEvidence;
use crate::inspect::{parse, read};
use cache::{ChainHash, VerifiedPeers};

pub use chain::{MAX_SERVER_CHAIN, Role};
pub use error::PeerError;
pub use identity::PeerIdentity;
pub use policy::{Issuers, PeerPolicy};

/// Most handshakes of one verifier that occupy a thread at the same time; they may wait for collateral.
const MAX_VERIFYING: usize = 64;

/// Verifies peers and remembers them for a short while; cheap to clone.
#[derive(Clone)]
pub struct PeerVerifier(Arc<Inner>);

struct Inner {
    verifier: Verifier,
    policy: PeerPolicy,
    verified: VerifiedPeers,
    turns: Arc<Semaphore>,
}

impl PeerVerifier {
    /// A verifier of peers that `policy` lets in. Time is that of `verifier`.
    #[must_use]
    pub fn new(verifier: Verifier, policy: PeerPolicy) -> Self {
        let turns = Arc::new(Semaphore::new(MAX_VERIFYING));
        Self(Arc::new(Inner { verifier, policy, verified: VerifiedPeers::default(), turns }))
    }

    /// Verifies the chain that a peer showed, leaf first: dates, signature, evidence, policy. May wait for
    /// collateral, so it must not be called where other work would wait with it. It does not show that
    /// the peer has the key; the TLS handshake does.
    pub fn chain(&self, chain: &[CertificateDer<'_>], role: Role) -> Result<Arc<PeerIdentity>, PeerError> {
        let inner = &*self.0;
        let now = inner.verifier.clock().now();
        let hash = ChainHash::of(chain);
        // The role is judged each time: it is not part of who the peer is.
        let leaf = chain::check(chain, &inner.policy.issuers, role, now)?;
        if let Some(peer) = inner.verified.get(hash, now) {
            return Ok(peer);
        }
        let certificate = parse(leaf)?;
        let carried = read(&certificate)?;
        let mut peer = self.evidence(&carried.public_key, &carried.evidence)?;
        peer.valid_until = peer.valid_until.min(carried.not_after);
        let peer = Arc::new(peer);
        inner.verified.insert(hash, Arc::clone(&peer), now);
        Ok(peer)
    }

    /// Verifies evidence that came with a key (its `SubjectPublicKeyInfo`, DER) in some other way, such as
    /// a certificate request. May wait for collateral.
    pub fn evidence(&self, public_key: &[u8], evidence: &CarriedEvidence) -> Result<PeerIdentity, PeerError> {
        let inner = &*self.0;
        let peer = identity::establish(&inner.verifier, &inner.policy.platform, public_key, evidence)?;
        inner.policy.check(&peer)?;
        Ok(peer)
    }

    /// Who is at the other end of a connection whose handshake is done. Takes what the handshake found
    /// out, and verifies again if that is forgotten already.
    pub fn peer_identity(
        &self,
        connection: &CommonState,
        role: Role,
    ) -> Result<Arc<PeerIdentity>, PeerError> {
        self.chain(connection.peer_certificates().ok_or(PeerError::NoCertificate)?, role)
    }

    /// Permits to occupy a thread with a handshake.
    pub(crate) fn turns(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.turns)
    }
}

impl fmt::Debug for PeerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerVerifier").field("policy", &self.0.policy).finish_non_exhaustive()
    }
}
