//! The verifier: roots, collateral and clock together.

use std::num::NonZero;
use std::sync::Arc;

use jiff::Timestamp;

use crate::nitro::{self, VerifiedNitro};
use crate::pool::Pool;
use crate::quote::{self, Envelope, KnownPlatforms};
use crate::snp::{self, SnpChain, VerifiedSnp};
use crate::{
    Clock, Collateral, CollateralCache, CollateralError, CollateralKey, TrustRoots, VerifiedQuote,
    VerifyError,
};

/// Verifies evidence; cheap to clone.
#[derive(Clone, Debug)]
pub struct Verifier(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    roots: TrustRoots,
    collateral: Option<Arc<CollateralCache>>,
    clock: Clock,
    pool: Pool,
    platforms: KnownPlatforms,
}

impl Verifier {
    /// A verifier that gets collateral from `collateral` and runs on as many threads as there are cores.
    #[must_use]
    pub fn new(roots: TrustRoots, collateral: Arc<CollateralCache>, clock: Clock) -> Self {
        Self::with(roots, Some(collateral), clock, None)
    }

    /// A verifier for evidence that comes with its collateral.
    #[must_use]
    pub fn offline(roots: TrustRoots, clock: Clock) -> Self {
        Self::with(roots, None, clock, None)
    }

    /// The same verifier on `workers` threads.
    #[must_use]
    pub fn on_workers(&self, workers: NonZero<usize>) -> Self {
        let Inner { roots, collateral, clock, .. } = &*self.0;
        Self::with(roots.clone(), collateral.clone(), clock.clone(), Some(workers))
    }

    fn with(
        roots: TrustRoots,
        collateral: Option<Arc<CollateralCache>>,
        clock: Clock,
        workers: Option<NonZero<usize>>,
    ) -> Self {
        Self(Arc::new(Inner {
            roots,
            collateral,
            clock,
            pool: Pool::new(workers),
            platforms: KnownPlatforms::default(),
        }))
    }

    /// The accepted roots.
    #[must_use]
    pub fn roots(&self) -> &TrustRoots {
        &self.0.roots
    }

    /// The clock that says what "now" is.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Which collateral a quote needs, by its own unverified claims.
    pub fn collateral_key(&self, quote: &[u8]) -> Result<CollateralKey, VerifyError> {
        Envelope::parse(quote)?.collateral_key(&self.0.roots)
    }

    /// Verifies a quote now, with collateral of the cache, on the bounded pool. Must be called within a
    /// tokio runtime.
    pub async fn quote(&self, quote: &[u8]) -> Result<VerifiedQuote, VerifyError> {
        let envelope = Envelope::parse_knowing(quote, &self.0.platforms)?;
        let (cache, key) = self.wanted(&envelope)?;
        let collateral = cache.get(&key).await?;
        let (this, quote) = (Arc::clone(&self.0), quote.to_vec());
        self.0.pool.run(move || this.verify(&quote, &envelope, key, collateral)).await
    }

    /// Verifies a quote now, with collateral of the cache, on this thread: for the inside of a TLS
    /// handshake. Waits for the cache at most half a minute.
    pub fn quote_blocking(&self, quote: &[u8]) -> Result<VerifiedQuote, VerifyError> {
        let envelope = Envelope::parse_knowing(quote, &self.0.platforms)?;
        let (cache, key) = self.wanted(&envelope)?;
        let collateral = cache.get_blocking(&key)?;
        self.0.verify(quote, &envelope, key, collateral)
    }

    /// Verifies a quote with this collateral at this time, on this thread, without network.
    pub fn quote_with(
        &self,
        quote: &[u8],
        collateral: &Collateral,
        now: Timestamp,
    ) -> Result<VerifiedQuote, VerifyError> {
        let envelope = Envelope::parse(quote)?;
        quote::verify(quote, &envelope, &self.0.roots, Arc::new(collateral.clone()), now)
    }

    /// Verifies a Nitro document that was made for this moment: it must not be older than an hour nor five
    /// minutes ahead.
    pub fn nitro(&self, document: &[u8], now: Timestamp) -> Result<VerifiedNitro, VerifyError> {
        nitro::verify(document, &self.0.roots, &nitro::When::Now(now))
    }

    /// Verifies a stored Nitro document as of the time at which it was made.
    pub fn nitro_stored(&self, document: &[u8]) -> Result<VerifiedNitro, VerifyError> {
        nitro::verify(document, &self.0.roots, &nitro::When::Made)
    }

    /// Verifies an SEV-SNP report with the certificates above it.
    pub fn snp(&self, report: &[u8], chain: &SnpChain, now: Timestamp) -> Result<VerifiedSnp, VerifyError> {
        snp::verify(report, chain, &self.0.roots, now)
    }

    /// Which collateral a quote needs, of which cache. Nobody is asked for collateral in the name of a
    /// platform that the root does not vouch for: invented ones would fill cache and network.
    fn wanted(&self, envelope: &Envelope) -> Result<(&CollateralCache, CollateralKey), VerifyError> {
        let key = envelope.collateral_key(&self.0.roots)?;
        let cache = self.0.collateral.as_deref().ok_or(CollateralError::NoSource(key.root))?;
        if !cache.has(&key) {
            envelope.check_chain(&key, &self.0.roots, self.0.clock.now())?;
        }
        Ok((cache, key))
    }
}

impl Inner {
    /// Verifies a quote now with collateral of the cache, and remembers its platform.
    fn verify(
        &self,
        quote: &[u8],
        envelope: &Envelope,
        key: CollateralKey,
        collateral: Arc<Collateral>,
    ) -> Result<VerifiedQuote, VerifyError> {
        // With a chain of the collateral's own, the quote's is not looked at.
        let own_chain = collateral.pck_certificate_chain.is_none();
        let verified = quote::verify(quote, envelope, &self.roots, collateral, self.clock.now())?;
        if own_chain {
            envelope.remember(key, &self.platforms);
        }
        Ok(verified)
    }
}
