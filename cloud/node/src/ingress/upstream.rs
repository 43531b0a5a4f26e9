//! The ways into VMs: chosen for each request, counted per VM, with connections that are used again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cloister_node_api::VmRoute;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::attempt::{Fate, RequestBody};
use super::balance::{Rank, in_order};
use super::connector::{Connector, GuestStream, Target, Ways};
use super::host::{Mode, Route};
use super::refusal::Refusal;
use super::routes::{Elsewhere, RouteCache};
use crate::backends::{Backend, Readiness};
use crate::flows::Flow;

/// Replicas that one request is tried on.
pub(super) const MAX_TRIES: usize = 3;
/// How long a replica that failed is the last choice.
const FAILING_FOR: Duration = Duration::from_secs(5);
/// Connections kept per guest and port.
const MAX_IDLE: usize = 32;
/// Longest response head that is read from a guest, in bytes.
const MAX_HEAD_BYTES: usize = 128 * 1024;
/// VMs that are remembered before those without traffic are forgotten.
const MAX_QUIET_LANES: usize = 256;

/// Every way into VMs, of this node and of others.
pub(super) struct Upstreams {
    ways: Arc<Ways>,
    routes: RouteCache,
    streams_per_vm: usize,
    lanes: Mutex<HashMap<Target, Arc<Lane>>>,
    turns: AtomicUsize,
}

/// The way into one VM.
struct Lane {
    connector: Connector,
    permits: Arc<Semaphore>,
    /// `None` while no connections are kept.
    clients: Mutex<Option<Clients>>,
    failed_at: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct Clients {
    http1: Client<Connector, RequestBody>,
    http2: Client<Connector, RequestBody>,
}

/// The right to one stream with a VM; given back when dropped.
pub(super) struct Admission {
    lane: Arc<Lane>,
    _permit: OwnedSemaphorePermit,
    /// `None` for a VM of another node, which counts the tunnel.
    _flow: Option<Flow>,
}

/// What came of a request so far.
#[derive(Default)]
pub(super) struct Tried(Vec<(Target, Fate)>);

impl Tried {
    fn fates(&self, target: &Target) -> impl Iterator<Item = Fate> {
        self.0.iter().filter(move |(tried, _)| tried == target).map(|(_, fate)| *fate)
    }

    /// Whether a replica may be tried (again): one that takes no connections need not be, and one that hung up
    /// gets a second chance, because its connection may have been an old one.
    fn leaves(&self, target: &Target) -> bool {
        self.fates(target).all(|fate| fate != Fate::NotSent) && self.fates(target).count() < 2
    }

    /// Notes an attempt.
    pub(super) fn add(&mut self, admission: &Admission, fate: Fate) {
        admission.lane.note_failure();
        self.0.push((Target::clone(&admission.lane.connector.target), fate));
    }

    /// Whether there were as many attempts as there may be.
    pub(super) fn is_enough(&self) -> bool {
        self.0.len() >= MAX_TRIES
    }
}

impl Upstreams {
    pub(super) fn new(ways: Ways, routes: RouteCache, streams_per_vm: usize) -> Self {
        let turns = AtomicUsize::new(0);
        Self { ways: Arc::new(ways), routes, streams_per_vm, lanes: Mutex::default(), turns }
    }

    /// Finds a replica behind a route and takes one of its places.
    pub(super) async fn admit(&self, route: &Route, tried: &Tried) -> Result<Admission, Refusal> {
        let (here, elsewhere) = self.find(&route.id, tried).await;
        let candidates = self.candidates(&here, &elsewhere.routes, tried);
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let mut refusal = Refusal::of_nobody(&here, &elsewhere);
        for target in in_order(candidates, turn) {
            match self.enter(&target) {
                Ok(admission) => return Ok(admission),
                Err(why) => refusal = why,
            }
        }
        Err(refusal)
    }

    /// The replicas of an identifier on this node, and what is known of those on others.
    async fn find(&self, id: &str, tried: &Tried) -> (Vec<Backend>, Elsewhere) {
        let mut here = self.ways.backends.resolve(id);
        let is_left = |backend: &Backend| {
            backend.readiness == Readiness::Ready && tried.leaves(&Target::Here(backend.vm))
        };
        let mut elsewhere = self.routes.lookup(id, !here.iter().any(is_left)).await;
        let is_doubtful =
            |backend: &Backend, elsewhere: &Elsewhere| backend.is_claim && !elsewhere.names(backend.vm);
        if here.iter().any(|backend| is_doubtful(backend, &elsewhere)) {
            elsewhere = self.routes.lookup(id, true).await;
            here.retain(|backend| !is_doubtful(backend, &elsewhere));
        }
        (here, elsewhere)
    }

    /// Opens a connection of its own to a replica behind a route.
    pub(super) async fn open(&self, route: &Route) -> Result<(Admission, GuestStream), Refusal> {
        let (mut tried, mut refusal) = (Tried::default(), None);
        while !tried.is_enough() {
            let admission = match self.admit(route, &tried).await {
                Ok(admission) => admission,
                Err(why) => return Err(refusal.unwrap_or(why)),
            };
            match admission.lane.connector.connect(route.port).await {
                Ok(stream) => return Ok((admission, stream)),
                Err(error) => {
                    refusal = Some(Refusal::of(&error));
                    tried.add(&admission, Fate::NotSent);
                }
            }
        }
        Err(refusal.unwrap_or(Refusal::Unreachable))
    }

    /// Ready replicas, ranked. Those that are not ready lose the connections that were kept to them: their
    /// apps are about to end and wait for them.
    fn candidates(&self, here: &[Backend], elsewhere: &[VmRoute], tried: &Tried) -> Vec<(Rank, Target)> {
        let here = here.iter().map(|vm| (vm.readiness == Readiness::Ready, Target::Here(vm.vm)));
        let there = elsewhere.iter().map(|route| (route.ready, Target::there(route)));
        let lanes = self.lanes();
        let rank = |(is_ready, target): (bool, Target)| {
            let lane = lanes.get(&target);
            if !is_ready {
                lane.inspect(|lane| lane.let_go());
                return None;
            }
            let rank = Rank {
                tried: tried.fates(&target).next().is_some(),
                failing: lane.is_some_and(|lane| lane.is_failing()),
                streams: lane
                    .map_or(0, |lane| self.streams_per_vm.saturating_sub(lane.permits.available_permits())),
                remote: !matches!(target, Target::Here(_)),
            };
            tried.leaves(&target).then_some((rank, target))
        };
        here.chain(there).filter_map(rank).collect()
    }

    fn enter(&self, target: &Target) -> Result<Admission, Refusal> {
        let lane = self.lane(target);
        let permit = Arc::clone(&lane.permits).try_acquire_owned().map_err(|_| Refusal::Busy)?;
        let flow = match target {
            // It was ready a moment ago.
            Target::Here(vm) => Some(self.ways.backends.begin(*vm).ok_or(Refusal::Leaving)?),
            Target::There { .. } => None,
        };
        Ok(Admission { lane, _permit: permit, _flow: flow })
    }

    fn lane(&self, target: &Target) -> Arc<Lane> {
        let mut lanes = self.lanes();
        if let Some(lane) = lanes.get(target) {
            return Arc::clone(lane);
        }
        if lanes.len() >= MAX_QUIET_LANES {
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        let connector = Connector { ways: Arc::clone(&self.ways), target: Arc::new(target.clone()) };
        let lane = Arc::new(Lane {
            connector,
            permits: Arc::new(Semaphore::new(self.streams_per_vm)),
            clients: Mutex::default(),
            failed_at: Mutex::default(),
        });
        lanes.insert(target.clone(), Arc::clone(&lane));
        lane
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Target, Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    /// The clients with their connections.
    fn clients(&self) -> Clients {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.get_or_insert_with(|| Clients::new(&self.connector)).clone()
    }

    /// Closes connections that carry nothing, and those that do when they are done.
    fn let_go(&self) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn note_failure(&self) {
        *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_failing(&self) -> bool {
        let failed_at = *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner);
        failed_at.is_some_and(|at| at.elapsed() < FAILING_FOR)
    }
}

impl Clients {
    fn new(connector: &Connector) -> Self {
        let client = |http2_only| {
            Client::builder(TokioExecutor::new())
                .http2_only(http2_only)
                .http1_max_buf_size(MAX_HEAD_BYTES)
                // The caller sets `Host`: the app sees the name that its client used.
                .set_host(false)
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(connector.target.keep_idle())
                .pool_max_idle_per_host(MAX_IDLE)
                .build(connector.clone())
        };
        Self { http1: client(false), http2: client(true) }
    }
}

impl Admission {
    /// Sends a request whose URI holds the canonical name of the route.
    pub(super) async fn request(
        &self,
        mode: Mode,
        request: http::Request<RequestBody>,
    ) -> Result<http::Response<Incoming>, Error> {
        let Clients { http1, http2 } = self.lane.clients();
        let client = if mode == Mode::Http2 { http2 } else { http1 };
        client.request(request).await
    }
}
