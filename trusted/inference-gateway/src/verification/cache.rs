//! What is known about one upstream, and the one verification that may be under way.

use std::sync::Arc;
use std::time::Duration;

use cloister_verifier::Clock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use super::finding::Finding;
use super::reason::Reason;
use super::session::Kept;
use super::target::{Method, Target};
use super::{KeepSessions, Trust, Verified, aci_service, program};
use crate::config::UpstreamConfig;

/// How long before its end a verification is renewed, in seconds.
const RENEW_AHEAD: u64 = 60;
/// How long after a failure nothing is verified anew, in seconds: at least this, and up to twice as long, so that
/// gateways of one upstream do not ask in step.
const FAILURE_KEPT: u64 = 3;
/// How long after a failure nobody waits long for a verification, in seconds: some rounds, each of which verifies anew.
const FAILURE_TOLD: u64 = 30;
/// How long somebody waits for a verification after one that failed: an upstream that does not answer holds up the first
/// request alone for longer.
const MOMENT: Duration = Duration::from_secs(1);
/// How long it is remembered which keys an upstream did not have, in seconds. What proves keys that it does not have,
/// again and again, is verified as seldom as what proves nothing.
const MISS_KEPT: u64 = 60;

/// What verifications need.
pub(super) struct Verifying {
    trust: Trust,
    store: Arc<dyn KeepSessions>,
    clock: Clock,
}

impl std::fmt::Debug for Verifying {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Verifying").field("trust", &self.trust).finish_non_exhaustive()
    }
}

impl Verifying {
    pub(super) const fn new(trust: Trust, store: Arc<dyn KeepSessions>, clock: Clock) -> Self {
        Self { trust, store, clock }
    }

    /// Seconds since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_second()).unwrap_or_default()
    }

    async fn find(&self, target: &Target) -> Result<Finding, Reason> {
        let finding = async {
            match &target.method {
                Method::AciService(accepted) => {
                    aci_service::verify(&self.trust, target, accepted, || self.now()).await
                }
                Method::Program(program) => program::verify(target, program, target.patience).await,
            }
        };
        tokio::time::timeout(target.patience, finding)
            .await
            .unwrap_or_else(|_| Err("the verification took too long".into()))
    }

    /// Verifies, and keeps what was found. `before` stands for it where it says the same.
    async fn verify(&self, target: &Target, before: Option<Arc<Kept>>) -> Result<Current, Reason> {
        let finding = self.find(target).await?;
        let now = self.now();
        if finding.not_after.is_some_and(|end| end <= now) {
            return Err("what the upstream proved has ended".into());
        }
        let session = if let Some(before) = before.filter(|before| before.says(target, &finding, now)) {
            before
        } else {
            let kept = Kept::new(target, &finding, now)
                .map_err(|_| Reason::from("what was found has no canonical form"))?;
            self.store
                .keep(&kept.id, kept.document.clone(), kept.record.expires_at)
                .await
                .map_err(|_| Reason::from("the session could not be kept"))?;
            Arc::new(kept)
        };
        info!(
            upstream = target.name,
            session = session.id,
            evidence = finding.evidence.digest,
            "upstream verified"
        );
        let until = now.saturating_add(target.lifetime).min(session.record.expires_at);
        let ahead = RENEW_AHEAD.min(target.lifetime / 2);
        Ok(Current {
            verified: Arc::new(Verified {
                session_id: session.id.clone(),
                channel_bindings: session.record.channel_binding.clone(),
                claims: session.record.claims.clone(),
                pins: finding.pins.to_vec(),
            }),
            session,
            from: now,
            until,
            renew_at: until.saturating_sub(ahead),
        })
    }
}

/// A verification that holds for a time.
#[derive(Debug, Clone)]
struct Current {
    verified: Arc<Verified>,
    session: Arc<Kept>,
    from: u64,
    until: u64,
    renew_at: u64,
}

impl Current {
    /// A clock that was set back ends it, too.
    const fn holds(&self, now: u64) -> bool {
        self.from <= now && now < self.until
    }
}

#[derive(Debug, Clone)]
struct Failure {
    reason: Reason,
    /// When, in seconds since the Unix epoch.
    at: u64,
    /// For how many seconds nothing is verified anew.
    kept: u64,
}

impl Failure {
    fn new(reason: Reason, at: u64) -> Self {
        Self { reason, at, kept: FAILURE_KEPT.saturating_add(jitter(FAILURE_KEPT)) }
    }

    /// Whether it is so long ago at most. A clock that was set back ends it.
    fn is_within(&self, seconds: u64, now: u64) -> bool {
        (self.at..self.at.saturating_add(seconds)).contains(&now)
    }
}

/// Keys that an upstream proved and did not have.
#[derive(Debug)]
struct Miss {
    pins: Vec<[u8; 32]>,
    at: u64,
}

impl Miss {
    fn is_again(&self, pins: &[[u8; 32]], now: u64) -> bool {
        self.pins == pins && (self.at..=self.at.saturating_add(MISS_KEPT)).contains(&now)
    }
}

type Outcome = Result<Arc<Verified>, Reason>;
/// A verification under way; its sender is dropped when it ends, however it ends.
type Flight = watch::Receiver<Option<Outcome>>;

#[derive(Debug, Default)]
struct State {
    current: Option<Current>,
    /// The last failure. A failed renewal leaves what still holds alone.
    failure: Option<Failure>,
    flight: Option<Flight>,
    missed: Option<Miss>,
}

/// What is known about one upstream, or one model of it.
#[derive(Debug)]
pub(super) struct Slot {
    upstream: Arc<UpstreamConfig>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Target,
    state: Mutex<State>,
}

/// What somebody who asks gets.
enum Look {
    Now(Outcome),
    /// What comes of it in a moment, or else this failure.
    Soon(Flight, Reason),
    Later(Flight),
}

/// What a verification finds out.
async fn landing(mut flight: Flight) -> Outcome {
    let landed = flight.wait_for(Option::is_some).await;
    let outcome = landed.ok().and_then(|outcome| outcome.clone());
    outcome.unwrap_or_else(|| Err("the verification was interrupted".into()))
}

impl Slot {
    pub(super) fn new(target: Target, upstream: &Arc<UpstreamConfig>) -> Self {
        let shared = Arc::new(Shared { target, state: Mutex::default() });
        Self { upstream: Arc::clone(upstream), shared }
    }

    /// The same for a configuration that was read anew and says the same.
    pub(super) fn with_upstream(&self, upstream: &Arc<UpstreamConfig>) -> Self {
        Self { upstream: Arc::clone(upstream), shared: Arc::clone(&self.shared) }
    }

    pub(super) const fn upstream(&self) -> &Arc<UpstreamConfig> {
        &self.upstream
    }

    pub(super) fn target(&self) -> &Target {
        &self.shared.target
    }

    /// The channel: at once if one is known, or that there was none a moment ago; otherwise after the verification that is
    /// under way or begins, for which nobody waits long if the one before failed.
    pub(super) async fn channel(&self, verifying: &Arc<Verifying>) -> Outcome {
        match self.shared.look(verifying) {
            Look::Now(outcome) => outcome,
            Look::Soon(flight, failure) => timeout(MOMENT, landing(flight)).await.unwrap_or(Err(failure)),
            Look::Later(flight) => landing(flight).await,
        }
    }

    /// Begins a verification if none is known or the known one is about to end, and none is under way.
    pub(super) fn renew(&self, verifying: &Arc<Verifying>) {
        drop(self.shared.look(verifying));
    }

    /// Forgets a channel whose pins the upstream did not meet, if it is still the one that is given out.
    pub(super) fn mismatched(&self, channel: &Verified, now: u64) {
        let mut state = self.shared.state.lock();
        if state.current.as_ref().is_none_or(|current| !std::ptr::eq(&raw const *current.verified, channel)) {
            return;
        }
        warn!(upstream = self.shared.target.name, "the upstream's TLS key is not the verified one");
        state.current = None;
        let before = state.missed.replace(Miss { pins: channel.pins.clone(), at: now });
        if before.is_some_and(|before| before.is_again(&channel.pins, now)) {
            let reason = "the upstream's TLS key is none of those that it proves";
            state.failure = Some(Failure::new(reason.into(), now));
        }
    }

    /// The session that holds.
    pub(super) fn session(&self, now: u64) -> Option<Arc<Kept>> {
        let state = self.shared.state.lock();
        state
            .current
            .as_ref()
            .filter(|current| current.holds(now))
            .map(|current| Arc::clone(&current.session))
    }
}

impl Shared {
    fn look(self: &Arc<Self>, verifying: &Arc<Verifying>) -> Look {
        let now = verifying.now();
        let mut state = self.state.lock();
        let flying = state.flight.clone().filter(|flight| flight.has_changed().is_ok());
        let failure = state.failure.clone();
        let is_due =
            flying.is_none() && failure.as_ref().is_none_or(|failure| !failure.is_within(failure.kept, now));
        if let Some(current) = state.current.clone().filter(|current| current.holds(now)) {
            if is_due && now >= current.renew_at {
                self.begin(&mut state, verifying);
            }
            return Look::Now(Ok(current.verified));
        }
        let told = failure.filter(|failure| flying.is_some() || failure.is_within(FAILURE_TOLD, now));
        let flight = if is_due { Some(self.begin(&mut state, verifying)) } else { flying };
        match (flight, told) {
            (Some(flight), Some(failure)) => Look::Soon(flight, failure.reason),
            (None, Some(failure)) => Look::Now(Err(failure.reason)),
            (Some(flight), None) => Look::Later(flight),
            // Cannot be: a failure is told for longer than nothing is verified after it.
            (None, None) => Look::Later(self.begin(&mut state, verifying)),
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State, verifying: &Arc<Verifying>) -> Flight {
        let before = state.current.as_ref().map(|current| Arc::clone(&current.session));
        let flight = self.fly(verifying, before);
        state.flight = Some(flight.clone());
        flight
    }

    /// Begins a verification; it goes on when nobody waits for it any more.
    fn fly(self: &Arc<Self>, verifying: &Arc<Verifying>, before: Option<Arc<Kept>>) -> Flight {
        let (landed, flight) = watch::channel(None);
        let (this, verifying) = (Arc::clone(self), Arc::clone(verifying));
        tokio::spawn(async move {
            let found = verifying.verify(&this.target, before).await;
            let outcome = this.settle(found, verifying.now());
            landed.send_replace(Some(outcome));
        });
        flight
    }

    fn settle(&self, found: Result<Current, Reason>, now: u64) -> Outcome {
        let mut state = self.state.lock();
        state.flight = None;
        match found {
            Ok(current) => {
                let verified = Arc::clone(&current.verified);
                state.current = Some(current);
                state.failure = None;
                Ok(verified)
            }
            Err(reason) => {
                warn!(upstream = self.target.name, %reason, "upstream not verified");
                state.failure = Some(Failure::new(reason.clone(), now));
                Err(reason)
            }
        }
    }
}

/// A number from 0 to `most`.
fn jitter(most: u64) -> u64 {
    getrandom::u64().map_or(0, |random| random % most.saturating_add(1))
}
