//! The gateway's identity: its keys, the evidence that binds them to the machine, and what it signs.

mod gpus;
mod keys;
mod keysets;
mod legacy;
mod prover;
mod report;
mod routes;
mod signer;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use cloister_aci::receipt::{Receipt, SignError};
use cloister_aci::{Keyset, TlsKey};
use cloister_agent_client::Agent;
use cloister_verifier::Clock;
use http::HeaderValue;
use parking_lot::RwLock;

use crate::config::{GatewayConfig, SourceConfig};
use gpus::Asking;
pub(crate) use keys::Keys;
pub use keys::KeysError;
use keysets::Keysets;
pub(crate) use legacy::SigningAlgo;
use prover::Prover;
pub use routes::{open_routes, routes};

/// A keyset with less than this part of its time left is followed by another one.
const RENEWED_AT: u64 = 4;

/// Keys of one keyset, with their secrets. Renewed before it ends; what is under way keeps the one it began with.
#[derive(Debug)]
pub struct Identity {
    /// The public half.
    pub keyset: Keyset,
    /// `sha256:…` of the keyset.
    pub digest: String,
    /// The same as the value of a header.
    pub(crate) digest_header: HeaderValue,
    keys: Arc<Keys>,
    key_id: String,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum NotaryError {
    /// There are no keys.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// Former keysets cannot be read, or the new one not be kept.
    #[error("{}: keysets cannot be kept", .0.display())]
    Keysets(PathBuf, #[source] io::Error),
}

/// What a keyset says beside its keys, and a report beside its evidence.
#[derive(Debug, Clone)]
struct Terms {
    lifetime_s: u64,
    subject: Option<String>,
    encrypts: bool,
    /// Whether the models run in this machine.
    serves_directly: bool,
}

/// Signs receipts, and answers for the machine.
#[derive(Debug)]
pub struct Notary {
    keys: Arc<Keys>,
    terms: Terms,
    source: Option<SourceConfig>,
    current: RwLock<Arc<Identity>>,
    keysets: Option<Keysets>,
    /// Makes evidence; `None` where there is no guest agent.
    prover: Option<Prover>,
    /// How upstreams are asked for evidence of theirs.
    asking: Asking,
    clock: Clock,
}

impl Notary {
    /// With the keys and the evidence of the machine, if the configuration names its agent, and for these TLS keys.
    /// A keyset that the gateway had before and that still holds stays.
    pub async fn start(
        config: &GatewayConfig,
        tls_keys: Vec<TlsKey>,
        clock: Clock,
    ) -> Result<Self, NotaryError> {
        let dir = config.state_dir.join("keysets");
        let failed = |error| NotaryError::Keysets(dir.clone(), error);
        let keysets = Keysets::open(dir.clone()).map_err(failed)?;
        let mut subject = config.subject.clone();
        let (keys, prover) = match &config.agent_socket {
            Some(socket) => {
                let agent = Agent::new(socket);
                let keys = Keys::of(&agent).await?;
                let prover = Prover::start(agent).await;
                subject = subject.or_else(|| prover.subject());
                (keys, Some(prover))
            }
            None => (Keys::fresh()?, None),
        };
        let terms = Terms {
            lifetime_s: config.keyset_lifetime_s,
            subject,
            encrypts: config.enable_e2ee,
            serves_directly: config.direct_serving,
        };
        let keys = Arc::new(keys);
        let now = seconds(&clock);
        let former = keysets.all().map_err(failed)?;
        let fresh = Identity::new(&keys, &terms, tls_keys, now);
        // A restart alone is no reason for another keyset: clients have pinned this one.
        let identity = former
            .into_iter()
            .filter(|keyset| keyset.not_after <= fresh.keyset.not_after && !is_old(keyset, &terms, now))
            .filter(|keyset| fresh.until(keyset.not_after).keyset == *keyset)
            .max_by_key(|keyset| keyset.not_after)
            .map_or_else(|| fresh.until(fresh.keyset.not_after), |keyset| fresh.until(keyset.not_after));
        keysets.keep(&identity.keyset).map_err(failed)?;
        Ok(Self {
            keys,
            terms,
            source: config.source.clone(),
            current: RwLock::new(Arc::new(identity)),
            keysets: Some(keysets),
            prover,
            asking: Asking::default(),
            clock,
        })
    }

    /// With fresh keys that end with the process, nothing on disk, and no evidence.
    pub fn in_memory(clock: Clock) -> Result<Self, KeysError> {
        Ok(Self::with_keys(Keys::fresh()?, clock))
    }

    pub(crate) fn with_keys(keys: Keys, clock: Clock) -> Self {
        let terms =
            Terms { lifetime_s: 30 * 24 * 3600, subject: None, encrypts: true, serves_directly: false };
        let keys = Arc::new(keys);
        let identity = Identity::new(&keys, &terms, Vec::new(), seconds(&clock));
        let current = RwLock::new(Arc::new(identity));
        Self {
            keys,
            terms,
            source: None,
            current,
            keysets: None,
            prover: None,
            asking: Asking::default(),
            clock,
        }
    }

    /// The identity that serves now.
    #[must_use]
    pub fn identity(&self) -> Arc<Identity> {
        let current = Arc::clone(&self.current.read());
        let now = seconds(&self.clock);
        if !is_old(&current.keyset, &self.terms, now) {
            return current;
        }
        self.renew(None, now)
    }

    /// The listener has other TLS keys from now on.
    pub fn set_tls_keys(&self, tls_keys: Vec<TlsKey>) {
        if self.current.read().keyset.tls_public_keys != tls_keys {
            self.renew(Some(tls_keys), seconds(&self.clock));
        }
    }

    fn asking(&self) -> &Asking {
        &self.asking
    }

    /// Whether older or newer, the canonical text of a keyset that this gateway has served with.
    pub(crate) fn keyset_document(&self, digest: &str) -> io::Result<Option<String>> {
        let current = self.identity();
        if current.digest == digest {
            return Ok(Some(current.keyset.canonical()));
        }
        self.keysets.as_ref().map_or(Ok(None), |keysets| keysets.document(digest))
    }

    /// Another keyset, with other TLS keys or those that hold at that moment, unless somebody else has just made it.
    fn renew(&self, tls_keys: Option<Vec<TlsKey>>, now: u64) -> Arc<Identity> {
        let mut current = self.current.write();
        let tls_keys = tls_keys.unwrap_or_else(|| current.keyset.tls_public_keys.clone());
        let identity = Arc::new(Identity::new(&self.keys, &self.terms, tls_keys, now));
        let is_renewed = current.keyset.tls_public_keys == identity.keyset.tls_public_keys
            && !is_old(&current.keyset, &self.terms, now);
        if is_renewed {
            return Arc::clone(&current);
        }
        if let Some(Err(error)) = self.keysets.as_ref().map(|keysets| keysets.keep(&identity.keyset)) {
            tracing::error!(%error, "the new keyset cannot be kept: its receipts will lack it after a restart");
        }
        *current = Arc::clone(&identity);
        identity
    }
}

/// Whether it is time for the next one.
fn is_old(keyset: &Keyset, terms: &Terms, now: u64) -> bool {
    keyset.not_after.saturating_sub(now) < terms.lifetime_s / RENEWED_AT
}

fn seconds(clock: &Clock) -> u64 {
    u64::try_from(clock.now().as_second()).unwrap_or_default()
}

impl Identity {
    fn new(keys: &Arc<Keys>, terms: &Terms, tls_public_keys: Vec<TlsKey>, now: u64) -> Self {
        let (receipt_signing_keys, e2ee_public_keys) = keys.entries();
        let keyset = Keyset {
            e2ee_public_keys: if terms.encrypts { e2ee_public_keys } else { Vec::new() },
            not_after: now.saturating_add(terms.lifetime_s),
            receipt_signing_keys,
            subject: terms.subject.clone(),
            tls_public_keys,
        };
        Self::of(keyset, Arc::clone(keys), keys.receipt_key_id())
    }

    fn of(keyset: Keyset, keys: Arc<Keys>, key_id: String) -> Self {
        let digest = keyset.digest();
        // A digest is visible ASCII: this cannot fail.
        let digest_header = HeaderValue::from_str(&digest).unwrap_or(HeaderValue::from_static(""));
        Self { keyset, digest, digest_header, keys, key_id }
    }

    /// The same with another end.
    fn until(&self, not_after: u64) -> Self {
        let keyset = Keyset { not_after, ..self.keyset.clone() };
        Self::of(keyset, Arc::clone(&self.keys), self.key_id.clone())
    }

    /// The signed document of a receipt. Some ten microseconds.
    pub fn sign(&self, receipt: &Receipt) -> Result<Vec<u8>, SignError> {
        receipt.sign(&self.key_id, &self.keys.receipt)
    }

    /// From now on, or no longer, its key does not sign.
    #[cfg(test)]
    pub(crate) fn fail_to_sign(&self, fails: bool) {
        self.keys.receipt.fails.store(fails, std::sync::atomic::Ordering::Relaxed);
    }

    /// The secrets that clients encrypt to; `None` where that is switched off.
    pub(crate) fn decryption(&self) -> Option<&Arc<Keys>> {
        (!self.keyset.e2ee_public_keys.is_empty()).then_some(&self.keys)
    }
}
