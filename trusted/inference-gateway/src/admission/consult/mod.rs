//! A control plane that knows keys, credit and prices: asked before each request, told after it.

mod hooks;
mod known;
mod posting;
mod under_way;
mod untold;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cloister_verifier::Clock;
use http::StatusCode;
use parking_lot::RwLock;
use rust_decimal::Decimal;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::estimate::estimate;
use super::features::Features;
use super::{Admission, Ask, KeyHash};
use crate::accounting::{Left, Window};
use crate::config::ControlConfig;
use crate::error::{GatewayError, Kind};
use crate::record::{Finished, Row, Store};
use crate::surface::Surface;
use crate::unattended::unattended;

use hooks::CallError;
pub use hooks::{Hooks, HooksError};
use known::Known;
use posting::Posting;
pub use under_way::Begun;
use under_way::UnderWay;
use untold::Untold;
use wire::{Question, Verdict};

/// Longest model id that is asked about, in bytes: no model has a longer one.
const MAX_MODEL: usize = 512;

/// Most denials in a minute that have a row: they cost nobody anything.
const MOST_DENIALS: u64 = 60;
/// Most keys at once that it is asked about without a request: whoever has none can make up as many as he likes.
const MOST_STRANGERS: usize = 64;
/// Seconds after which a request comes again that is refused for what is under way.
const RETRY_S: u64 = 1;
const UNAUTHORIZED: u16 = StatusCode::UNAUTHORIZED.as_u16();
const TOO_MANY_REQUESTS: u16 = StatusCode::TOO_MANY_REQUESTS.as_u16();

/// A control plane, by its `consult` hooks.
#[derive(Debug)]
pub struct ControlPlane {
    hooks: Current,
    clock: Clock,
    untold: Arc<Untold>,
    store: Store,
    known: Known,
    strangers: Semaphore,
    under_way: Arc<UnderWay>,
    denials: Window,
    began: Instant,
    _workers: [AbortOnDropHandle<()>; 2],
}

/// The hooks that hold now.
type Current = Arc<RwLock<Arc<Hooks>>>;

impl ControlPlane {
    /// Begins to tell the control plane of the rows in the store that it does not know. Fails when its token, its
    /// authorities or the store cannot be read. Needs a runtime.
    pub fn start(config: &ControlConfig, store: Store, clock: Clock) -> Result<Self, HooksError> {
        Self::start_with(config, store, clock, under_way::EVERY)
    }

    /// The same, with another time after which it is told again what is under way.
    pub(super) fn start_with(
        config: &ControlConfig,
        store: Store,
        clock: Clock,
        every: Duration,
    ) -> Result<Self, HooksError> {
        let hooks: Current = Arc::new(RwLock::new(Arc::new(Hooks::new(config)?)));
        let untold = Arc::new(Untold::of(&store)?);
        let posting =
            Posting { store: store.clone(), hooks: Arc::clone(&hooks), untold: Arc::clone(&untold) };
        let under_way = Arc::<UnderWay>::default();
        let keeping = Arc::clone(&under_way).run(Arc::clone(&hooks), every);
        let workers = [tokio::spawn(posting.run()), tokio::spawn(keeping)].map(AbortOnDropHandle::new);
        Ok(Self {
            hooks,
            clock,
            untold,
            store,
            known: Known::default(),
            strangers: Semaphore::new(MOST_STRANGERS),
            under_way,
            denials: Window::new(MOST_DENIALS),
            began: Instant::now(),
            _workers: workers,
        })
    }

    /// Another place, token or limit holds from now on.
    pub fn configure(&self, hooks: Hooks) {
        *self.hooks.write() = Arc::new(hooks);
    }

    /// Something was spent that the control plane is to be told.
    pub(super) fn spent(&self, cost: Decimal) {
        self.untold.spent(cost);
    }

    /// What was spent and is not told yet, in the currency of the prices.
    #[must_use]
    pub fn untold(&self) -> Decimal {
        self.untold.sum()
    }

    pub(super) async fn admit(&self, ask: &Ask<'_>) -> Result<Admission, GatewayError> {
        let limit = self.hooks.read().untold_limit;
        self.untold.check(limit)?;
        let hooks = Arc::clone(&self.hooks.read());
        let prefix_key = hooks.prefix_key.as_ref().filter(|_| !ask.is_encrypted);
        let prefix_hash = prefix_key.and_then(|key| key.hash(ask.key, ask.surface, ask.body));
        let features = Features::of(ask.surface, ask.body).with_prefix(prefix_hash.clone());
        let question = Question {
            api_key_hash: ask.key.to_string(),
            model: ask.model.split_at(ask.model.floor_char_boundary(MAX_MODEL)).0,
            provider: ask.provider,
            tee: ask.is_tee_host.then_some(true),
            request_id: Some(ask.request_id),
            estimated_cost: Some(estimate(&features, ask.known, ask.dearest, ask.keeps_limits)),
            request: hooks.sends_features.then_some(features),
        };
        // Whoever gives up on this may leave something set aside.
        let over = Over { store: &self.store, ask: Some(*ask) };
        let verdict = match hooks.ask(&question).await {
            Ok(verdict) => {
                over.answered();
                verdict
            }
            Err(error) => {
                if !error.may_be_done() {
                    over.answered();
                }
                return Err(unavailable(&error));
            }
        };
        if verdict.allow {
            self.known.note(ask.key);
            let admission = verdict.admission(self.now());
            let begun = self.under_way.begin(ask.request_id, admission.user_id.as_deref());
            return Ok(Admission { begun: Some(Arc::new(begun)), prefix_hash, ..admission });
        }
        if verdict.status == Some(UNAUTHORIZED) {
            self.known.forget(ask.key);
        }
        let error = self.denial(&verdict);
        self.note_denial(ask, verdict, error.status());
        Err(error)
    }

    /// Has a denial told: one of somebody whom the control plane knows, or one that says how the service is. What a
    /// stranger asks for leaves nothing behind otherwise.
    fn note_denial(&self, ask: &Ask<'_>, verdict: Verdict, status: StatusCode) {
        let Verdict { user_id, virtual_key_id, .. } = verdict;
        let is_told =
            user_id.is_some() || status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        if is_told && self.denials.take(1, self.began.elapsed()).admitted {
            let error_source = Some("control".to_owned());
            let row = refused(ask, status);
            record(&self.store, ask, Row { user_id, virtual_key_id, error_source, ..row });
        }
    }

    /// The same, unless the key was known a moment ago.
    pub(super) async fn recognise(&self, key: KeyHash) -> Result<(), GatewayError> {
        if self.known.has(key) { Ok(()) } else { self.identify(key).await }
    }

    /// Asks without a model; whatever is said but that the key is none means that it is one.
    pub(super) async fn identify(&self, key: KeyHash) -> Result<(), GatewayError> {
        // Others wait for as long as an answer may take.
        let patience = self.hooks.read().timeout;
        let Ok(Ok(_place)) = timeout(patience, self.strangers.acquire()).await else {
            let busy =
                GatewayError::new(Kind::Unavailable, "Too many keys are asked about. Please try again.");
            return Err(GatewayError { retry_after: Some(RETRY_S), ..busy });
        };
        let verdict = self.asked_of(key, None).await?;
        let is_known = verdict.allow || verdict.status.is_some_and(|status| status != UNAUTHORIZED);
        if is_known {
            self.known.note(key);
            Ok(())
        } else {
            Err(self.denial(&verdict))
        }
    }

    /// The same under the id of a request, which counts it; then that there were too many is told, too.
    pub(super) async fn count_refused(&self, key: KeyHash, request_id: &str) -> Result<(), GatewayError> {
        let verdict = self.asked_of(key, Some(request_id)).await?;
        match verdict.status {
            _ if verdict.allow => Ok(()),
            Some(status) if !matches!(status, UNAUTHORIZED | TOO_MANY_REQUESTS) => Ok(()),
            _ => Err(self.denial(&verdict)),
        }
    }

    async fn asked_of(&self, key: KeyHash, request_id: Option<&str>) -> Result<Verdict, GatewayError> {
        let hooks = Arc::clone(&self.hooks.read());
        let question = Question {
            api_key_hash: key.to_string(),
            model: "",
            provider: None,
            tee: None,
            request: hooks.sends_features.then(|| Features::of(Surface::Chat, b"{}")),
            request_id,
            estimated_cost: None,
        };
        hooks.ask(&question).await.map_err(|error| unavailable(&error))
    }

    fn denial(&self, verdict: &Verdict) -> GatewayError {
        let status = verdict.status.and_then(|status| StatusCode::from_u16(status).ok());
        let kind = match status.unwrap_or(StatusCode::FORBIDDEN) {
            StatusCode::UNAUTHORIZED => Kind::Authentication,
            StatusCode::PAYMENT_REQUIRED => Kind::NoCredit,
            StatusCode::TOO_MANY_REQUESTS => Kind::RateLimited,
            status if status.is_client_error() || status.is_server_error() => Kind::Denied(status),
            _ => Kind::Unavailable,
        };
        let message = verdict.message.clone().unwrap_or_else(|| "The request was denied".to_owned());
        let retry_after = (kind == Kind::RateLimited).then_some(RETRY_S);
        let error = GatewayError { retry_after, ..GatewayError::new(kind, message) };
        let Some(limit) = verdict.rate_limit.filter(|_| kind == Kind::RateLimited) else { return error };
        let left = Left { requests: Some(limit.decision(false, self.now())), tokens: None };
        GatewayError { message: error.message, ..GatewayError::limited(left) }
    }

    /// Seconds since the Unix epoch.
    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_second()).unwrap_or_default()
    }
}

fn unavailable(error: &CallError) -> GatewayError {
    tracing::warn!(%error, "the control plane cannot be asked");
    GatewayError::new(Kind::Unavailable, "control plane unavailable")
}

/// Tells that a request is over to which leave was asked, when the answer is not known: the control plane may have set
/// something aside for it. It does so when it is dropped, unless an answer came before.
struct Over<'a> {
    store: &'a Store,
    ask: Option<Ask<'a>>,
}

impl Over<'_> {
    fn answered(mut self) {
        self.ask = None;
    }
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if let Some(ask) = self.ask {
            record(self.store, &ask, refused(&ask, StatusCode::SERVICE_UNAVAILABLE));
        }
    }
}

fn refused(ask: &Ask<'_>, status: StatusCode) -> Row {
    let now = crate::gateway::unix_now();
    Row::refused(ask.request_id, ask.surface.path(), ask.model, status.as_u16(), now)
}

/// Records the end of a request that got no leave. Nobody waits for it.
fn record(store: &Store, ask: &Ask<'_>, row: Row) {
    let (store, finished) = (store.clone(), Finished { key: ask.key, rows: vec![row], receipt: None });
    // At the first look the store is given it, and writes it before it ends, whoever waits for it.
    unattended(async move {
        if let Err(error) = store.finish(finished).await {
            tracing::warn!(%error, "the end of a request that got no leave could not be recorded");
        }
    });
}
