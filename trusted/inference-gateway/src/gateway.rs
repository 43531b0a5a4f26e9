//! The parts of a running gateway.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use cloister_verifier::Clock;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Control;
use crate::busy_poll::BusyPoll;
use crate::config::{GatewayConfig, UpstreamConfig};
use crate::door::{BodyBudget, OPEN_ROOM};
use crate::e2ee::Shares;
use crate::observe::{Metrics, Traces};
use crate::operator::Office;
use crate::proof::Notary;
use crate::record::{Arrears, Store};
use crate::routing::Catalogue;
use crate::upstream::{Upstream, UpstreamError};
use crate::verification::Verifications;

/// So many requests under way are few.
const FEW: usize = 4;

/// What a configuration makes; replaced as a whole. Requests that are under way keep the one they began with.
#[derive(Debug)]
pub struct Live {
    /// The configuration.
    pub config: GatewayConfig,
    /// Its models and routes.
    pub catalogue: Catalogue,
    /// Its upstreams, by name. Those that did not change keep their connections.
    pub upstreams: HashMap<String, Upstream>,
}

impl Live {
    /// From a configuration. Upstreams that are the same as in the previous one keep their connections, and their
    /// routes what is known of their health. Fails for an upstream that cannot be spoken with.
    pub fn new(config: GatewayConfig, previous: Option<&Self>) -> Result<Self, UpstreamError> {
        let before = |upstream: &UpstreamConfig| {
            let previous = previous?;
            let same = upstream.without_prices();
            let is_known = previous.config.upstreams.iter().any(|other| other.without_prices() == same);
            is_known.then(|| previous.upstreams.get(&upstream.name))?
        };
        let mut upstreams = HashMap::with_capacity(config.upstreams.len());
        for upstream in &config.upstreams {
            let client = before(upstream).cloned().map_or_else(|| Upstream::new(upstream), Ok)?;
            upstreams.insert(upstream.name.clone(), client);
        }
        let catalogue = Catalogue::following(&config, previous.map(|live| &live.catalogue));
        Ok(Self { config, catalogue, upstreams })
    }
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    live: RwLock<Arc<Live>>,
    /// Who decides whether a request is answered.
    pub control: Control,
    /// What stays of requests.
    pub store: Store,
    /// Requests whose records wait for the disk.
    pub arrears: Arrears,
    /// Who signs.
    pub notary: Notary,
    /// What upstreams proved.
    pub verifications: Verifications,
    /// Figures.
    pub metrics: Metrics,
    /// Who is told how requests went, if anybody is.
    pub traces: Option<Traces>,
    /// Requests that are under way, also those whose client left: each ends with its record. Whoever ends the process
    /// waits for them first.
    pub requests: TaskTracker,
    /// Told when what is under way has to end at once, with its record.
    pub cut: CancellationToken,
    /// Looks for what comes next.
    pub busy_poll: BusyPoll,
    /// The operator's rights.
    pub office: Office,
    /// Memory for bodies of requests.
    pub bodies: BodyBudget,
    /// Memory for large answers that need no key: evidence, keysets and sessions.
    pub open_evidence: BodyBudget,
    /// The same of the log of receipts.
    pub open_log: BodyBudget,
    /// How many encrypted requests of each key came lately.
    pub challenges: Shares,
    is_draining: AtomicBool,
    started: Instant,
}

impl Gateway {
    /// From its parts.
    #[must_use]
    pub fn new(
        live: Live,
        control: Control,
        store: Store,
        notary: Notary,
        verifications: Verifications,
        traces: Option<Traces>,
    ) -> Self {
        let bodies = BodyBudget::new(live.config.body_memory_mib.saturating_mul(1 << 20));
        Self {
            live: RwLock::new(Arc::new(live)),
            control,
            store,
            arrears: Arrears::default(),
            notary,
            verifications,
            metrics: Metrics::default(),
            traces,
            requests: TaskTracker::new(),
            cut: CancellationToken::new(),
            busy_poll: BusyPoll::default(),
            office: Office::default(),
            bodies,
            open_evidence: BodyBudget::new(OPEN_ROOM),
            open_log: BodyBudget::new(OPEN_ROOM),
            challenges: Shares::default(),
            is_draining: AtomicBool::new(false),
            started: Instant::now(),
        }
    }

    /// What holds now.
    #[must_use]
    pub fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live.read())
    }

    /// Another configuration holds from now on.
    pub fn replace(&self, live: Live) {
        *self.live.write() = Arc::new(live);
    }

    /// From now on nothing new is begun: whoever spreads requests learns it from `/health`.
    pub fn begin_draining(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    /// Whether the gateway is about to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// Something happened that something else may follow soon: a request came, or went out, or an answer was given. With
    /// many under way, who sleeps until then finds more to do at once, which costs each less than it waits.
    pub fn note_activity(&self) {
        if self.requests.len() <= FEW {
            self.busy_poll.note();
        }
    }

    /// Time since the start: what limits and breakers count in.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::system);

/// Seconds since the Unix epoch, by the machine's clock.
#[must_use]
pub fn unix_now() -> u64 {
    u64::try_from(CLOCK.now().as_second()).unwrap_or(0)
}

/// The machine's clock, for those who want it in the standard library's words.
#[must_use]
pub(crate) fn system_now() -> SystemTime {
    CLOCK.now().into()
}

/// Milliseconds since the Unix epoch, by the machine's clock.
#[must_use]
pub(crate) fn unix_now_ms() -> u64 {
    u64::try_from(CLOCK.now().as_millisecond()).unwrap_or(0)
}
