//! What the client gets, encrypted where it asked for that, and hashed as it goes.

use std::sync::Arc;

use bytes::Bytes;
use cloister_aci::digest_text;
use cloister_aci::receipt::Event;
use sha2::{Digest, Sha256};

use crate::e2ee::Sealer;
use crate::error::{GatewayError, Kind};

/// The bytes of one answer on their way out.
#[derive(Debug)]
pub(super) struct Wire {
    sealer: Option<Arc<Sealer>>,
    sent: Sha256,
    /// Before encryption, where there is any.
    clear: Option<Sha256>,
}

impl Wire {
    pub(super) fn new(sealer: Option<Sealer>) -> Self {
        let clear = sealer.as_ref().map(|_| Sha256::new());
        Self { sealer: sealer.map(Arc::new), sent: Sha256::new(), clear }
    }

    /// Whether anything is encrypted: what goes out has memory of its own then.
    pub(super) const fn encrypts(&self) -> bool {
        self.sealer.is_some()
    }

    /// A whole answer. Fails rather than let anything go out in clear.
    pub(super) async fn body(&mut self, clear: &Bytes) -> Result<Bytes, GatewayError> {
        let sealed = match &self.sealer {
            None => clear.clone(),
            Some(sealer) => {
                // As many key agreements as fields: they may not hold up those who wait for the network.
                let (sealer, clear) = (Arc::clone(sealer), clear.clone());
                let work = tokio::task::spawn_blocking(move || sealer.seal_body(&clear));
                work.await.map_err(|_| GatewayError::new(Kind::Internal, "The gateway failed"))??
            }
        };
        self.note(clear, &sealed);
        Ok(sealed)
    }

    /// Whole events of a stream. Fails rather than let anything go out in clear.
    pub(super) fn events(&mut self, clear: &Bytes) -> Result<Bytes, GatewayError> {
        let sealed = match &self.sealer {
            Some(sealer) if !clear.is_empty() => sealer.seal_events(clear)?,
            _ => clear.clone(),
        };
        self.note(clear, &sealed);
        Ok(sealed)
    }

    /// What the gateway itself says: comments and errors, which have nothing to hide.
    pub(super) fn own(&mut self, bytes: &Bytes) {
        self.note(bytes, bytes);
    }

    fn note(&mut self, clear: &[u8], sealed: &[u8]) {
        self.sent.update(sealed);
        if let Some(hash) = &mut self.clear {
            hash.update(clear);
        }
    }

    /// What the receipt says of all that went out.
    pub(super) fn returned(&self) -> Event {
        let body_hash = written(self.sent.clone());
        let cleartext_hash = self.clear.clone().map_or_else(|| body_hash.clone(), written);
        Event::ResponseReturned { body_hash, cleartext_hash }
    }
}

/// A hash as documents write it.
pub(super) fn written(hash: Sha256) -> String {
    digest_text(&hash.finalize().into())
}
