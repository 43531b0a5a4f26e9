//! What an upstream proved before anything is sent to it.
//!
//! [`Verifications::channel`] gives the channel to the machine that was verified, from the cache or freshly: many
//! who ask at once share one verification. What was verified is a [session](cloister_aci::session), kept in the
//! store before the first request goes through it.

mod aci_service;
mod cache;
mod claims;
mod custody;
mod evidence;
mod fetch;
mod finding;
mod machine;
mod program;
mod provenance;
mod reason;
mod routes;
mod session;
mod software;
mod target;
#[cfg(test)]
mod tests;
mod trust;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cloister_aci::session::{ChannelBinding, Claims};
use cloister_verifier::Clock;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use crate::body::Constraints;
use crate::gateway::{Gateway, Live};
use crate::record::{Store, StoreError};
use crate::routing::{Model, Route};
use cache::{Slot, Verifying};
pub use routes::routes;
pub use session::Kept;
use target::Target;
pub use trust::{Trust, TrustError};

/// How often what is due is looked for.
const ROUNDS: Duration = Duration::from_secs(5);

/// A channel to a verified machine, which only its key can end.
#[derive(Debug, Clone)]
pub struct Verified {
    /// The session that says what was verified.
    pub session_id: String,
    /// What ties requests to the machine.
    pub channel_bindings: Vec<ChannelBinding>,
    /// What was found.
    pub claims: Claims,
    /// SHA-256 of the keys (`SubjectPublicKeyInfo`) that the TLS connection may end at; never empty.
    pub pins: Vec<[u8; 32]>,
}

/// Why a route is no verified one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// It proves nothing, or not enough. The text is for receipts: it names no host and quotes nobody at length.
    #[error("{0}")]
    Failed(String),
    /// It is verified, by none of the sessions that the client accepts.
    #[error("none of the accepted sessions is current")]
    NotAccepted,
}

/// Whether a request to a model may only be sent to a verified upstream: the client asks for it, the host name or
/// the model promises it, or nothing else serves the model. An upstream may demand it for itself, too: see
/// [`is_required_by`].
#[must_use]
pub fn is_required(constraints: &Constraints, model: &Model, is_tee_host: bool) -> bool {
    constraints.verified || is_tee_host || model.config.require_verified || model.is_tee_only()
}

/// Whether nothing may be sent to a route unless it is verified, whatever the request demands.
#[must_use]
pub fn is_required_by(route: &Route) -> bool {
    route.upstream.require_verified
}

/// Keeps session records.
pub trait KeepSessions: Send + Sync + 'static {
    /// Keeps a record under its id until some time after `expires_at`, seconds since the Unix epoch. Answers when
    /// it is on the disk.
    fn keep<'a>(
        &'a self,
        id: &'a str,
        document: Vec<u8>,
        expires_at: u64,
    ) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;
}

impl KeepSessions for Store {
    fn keep<'a>(
        &'a self,
        id: &'a str,
        document: Vec<u8>,
        expires_at: u64,
    ) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>> {
        Box::pin(self.keep_session(id, document, expires_at))
    }
}

/// Knows what upstreams proved. Cheap to clone; clones know the same.
#[derive(Debug, Clone)]
pub struct Verifications {
    verifying: Arc<Verifying>,
    /// By the upstream's name; more than one where each model is verified by itself.
    slots: Arc<RwLock<HashMap<String, Vec<Arc<Slot>>>>>,
}

impl Verifications {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(trust: Trust, store: impl KeepSessions, clock: Clock) -> Self {
        Self { verifying: Arc::new(Verifying::new(trust, Arc::new(store), clock)), slots: Arc::default() }
    }

    /// The verified channel of a route, from the cache or freshly verified; several who ask at once share one
    /// verification, which goes on when they leave. `accepted` are the only sessions that count, where there are
    /// any.
    pub async fn channel(&self, route: &Route, accepted: &[String]) -> Result<Arc<Verified>, Unverified> {
        let slot =
            self.slot(route).ok_or_else(|| Unverified::Failed("the upstream proves nothing".into()))?;
        let verified = slot.channel(&self.verifying).await;
        let verified = verified.map_err(|reason| Unverified::Failed(reason.to_string()))?;
        if accepted.is_empty() || accepted.contains(&verified.session_id) {
            Ok(verified)
        } else {
            Err(Unverified::NotAccepted)
        }
    }

    /// The upstream's TLS key was none of a channel's pins: what is known about it is dropped, unless it was
    /// verified anew meanwhile. Whoever asks next has it verified at once, for its key may be a new one; if what it
    /// then proves is missed again, the upstream is unverified for seconds.
    pub fn mismatched(&self, route: &Route, channel: &Verified) {
        if let Some(slot) = self.slot(route) {
            slot.mismatched(channel, self.verifying.now());
        }
    }

    /// The sessions that hold now, by upstream and model.
    #[must_use]
    pub fn sessions(&self) -> Vec<Arc<Kept>> {
        let now = self.verifying.now();
        let mut kept: Vec<_> =
            self.slots.read().values().flatten().filter_map(|slot| slot.session(now)).collect();
        kept.sort_by(|one, other| one.id.cmp(&other.id));
        kept.dedup_by(|one, other| one.id == other.id);
        kept.sort_by(|one, other| one.record.upstream_name.cmp(&other.record.upstream_name));
        kept
    }

    /// Verifies what a configuration names and nobody has asked for yet, renews what is about to end, and forgets
    /// upstreams that it no longer names. Does not wait for the verifications.
    pub fn round(&self, live: &Live) {
        let routes: Vec<_> = live
            .catalogue
            .models()
            .flat_map(|model| &model.routes)
            .filter(|route| route.upstream.is_tee())
            .collect();
        let slots: Vec<_> = routes.iter().filter_map(|route| self.slot(route)).collect();
        self.slots.write().retain(|_, of_name| {
            of_name.retain(|known| slots.iter().any(|slot| Arc::ptr_eq(slot, known)));
            !of_name.is_empty()
        });
        for slot in &slots {
            slot.renew(&self.verifying);
        }
    }

    /// The slot of a route, made when it is not there or was made for another configuration of the upstream.
    fn slot(&self, route: &Route) -> Option<Arc<Slot>> {
        let model = Target::model_of(route);
        let known = self.known(route, model);
        if let Some(slot) = known.as_ref().filter(|slot| Arc::ptr_eq(slot.upstream(), &route.upstream)) {
            return Some(Arc::clone(slot));
        }
        let target = Target::of(route)?;
        let slot = match known.filter(|slot| *slot.target() == target) {
            Some(slot) => Arc::new(slot.with_upstream(&route.upstream)),
            None => Arc::new(Slot::new(target, &route.upstream)),
        };
        let mut slots = self.slots.write();
        let of_name = slots.entry(route.upstream.name.clone()).or_default();
        if let Some(other) = of_name
            .iter()
            .find(|other| other.target().model() == model && Arc::ptr_eq(other.upstream(), &route.upstream))
        {
            // Somebody else was quicker.
            return Some(Arc::clone(other));
        }
        of_name.retain(|other| other.target().model() != model);
        of_name.push(Arc::clone(&slot));
        Some(slot)
    }

    fn known(&self, route: &Route, model: Option<&str>) -> Option<Arc<Slot>> {
        let slots = self.slots.read();
        let of_name = slots.get(&route.upstream.name)?;
        of_name.iter().find(|slot| slot.target().model() == model).cloned()
    }
}

/// Keeps what upstreams proved fresh until it is told to stop.
pub async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let mut rounds = tokio::time::interval(ROUNDS);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = rounds.tick() => gateway.verifications.round(&gateway.live()),
            () = stop.cancelled() => return,
        }
    }
}
