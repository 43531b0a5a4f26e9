//! The two doors of a KMS that has its roots: who comes in, how many, and how they are sent away.
//!
//! Whoever comes to the release port is judged by its evidence before any handler sees what it asks; without
//! good evidence it gets one answer, which is the same whatever it asks, and the connection ends. The
//! directory takes anybody.

mod answer;
mod certificate;
mod limits;
mod metrics;
mod peers;
mod refusals;
mod serve;
#[cfg(test)]
pub(crate) mod tests;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cloister_kms_api::log::Caller;
use cloister_kms_api::{KmsError, KmsErrorCode, MachineResponse};
use cloister_ra_tls::{PeerError, PeerPolicy, PeerVerifier};
use cloister_verifier::{Policy, TcbStatus, TrustRoot, Verifier};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

pub(crate) use answer::{Answer, bad, error, json, key, read, secret_json, text};
pub use certificate::OwnCertificateError;
use certificate::{Certifier, ServerTls};
pub(crate) use limits::Limits;
pub(crate) use metrics::{Metrics, Port};
use peers::Peers;
pub(crate) use peers::{Admission, Network};
pub(crate) use refusals::{Refusals, Who};
pub(crate) use serve::Activity;
use serve::{Manner, serve};

use crate::directory::{self, AdminToken, AdminTokenError};
pub(crate) use crate::failure::chain;
use crate::release;
use crate::state::Keys;
use cloister_agent_client::Agent;

const HTTP2: &[u8] = b"h2";
/// How long to wait when the system gives no connection, because too many files are open.
const PAUSE: Duration = Duration::from_millis(50);

/// What the doors need.
pub(crate) struct Parts<'a> {
    /// Roots, policy and log.
    pub(crate) keys: Keys,
    /// Source of own evidence.
    pub(crate) agent: Agent,
    /// Judges evidence of callers.
    pub(crate) verifier: Verifier,
    /// Lets in evidence of hardware only.
    pub(crate) production: bool,
    /// Administrator's token; without one there is no administration.
    pub(crate) admin_token_file: Option<&'a Path>,
    /// What callers may take.
    pub(crate) limits: Limits,
}

/// Why the doors do not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No certificate.
    #[error(transparent)]
    Certificate(#[from] OwnCertificateError),
    /// No administrator.
    #[error(transparent)]
    AdminToken(#[from] AdminTokenError),
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) peers: PeerVerifier,
    pub(crate) refusals: Refusals,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: Limits,
    pub(crate) is_dev: bool,
    pub(crate) admin: Option<AdminToken>,
    /// Threads that verify further evidence of callers.
    pub(crate) verifying: Semaphore,
    /// Threads that read the log for anybody: apart, so that nobody's reading holds up a release.
    pub(crate) reading: Semaphore,
    tls: watch::Receiver<Arc<ServerTls>>,
    stop: CancellationToken,
}

impl Shared {
    /// The machine that the certificate of the moment is of.
    pub(crate) fn machine(&self) -> MachineResponse {
        MachineResponse { vm_config: self.tls.borrow().vm_config.clone() }
    }
}

/// Open doors.
pub(crate) struct Doors {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

/// Most requests of a kind that compute or read files at the same time.
const MAX_WORK: usize = 16;

impl Doors {
    /// Gets a certificate, and serves callers of both listeners from then on.
    pub(crate) async fn open(
        parts: Parts<'_>,
        release: TcpListener,
        directory: TcpListener,
    ) -> Result<Self, OpenError> {
        let admin = parts.admin_token_file.map(AdminToken::read).transpose()?;
        let is_dev = parts.verifier.roots().certificate(TrustRoot::Development).is_some();
        // How well patched a platform must be says the policy, per request.
        let platform = Policy {
            accepted_tcb: TcbStatus::ALL.into_iter().filter(|status| *status != TcbStatus::Revoked).collect(),
            production: parts.production,
            ..Policy::default()
        };
        let peers = PeerVerifier::new(parts.verifier, PeerPolicy::any_app(platform));
        let certifier = Certifier { keys: parts.keys.clone(), agent: parts.agent, peers: peers.clone() };
        let (sender, tls) = watch::channel(Arc::new(certifier.certify().await?));
        let (stop, metrics) = (CancellationToken::new(), Arc::new(Metrics::default()));
        let shared = Arc::new(Shared {
            refusals: Refusals::new(parts.keys.clone()),
            keys: parts.keys,
            peers,
            metrics: Arc::clone(&metrics),
            limits: parts.limits,
            is_dev,
            admin,
            verifying: Semaphore::new(MAX_WORK),
            reading: Semaphore::new(MAX_WORK),
            tls,
            stop: stop.clone(),
        });
        let tasks = TaskTracker::new();
        tasks.spawn(certifier.keep_up(sender, metrics, stop));
        if let Some(chain) = shared.keys.authority().chain() {
            tasks.spawn(chain.clone().keep_up(shared.stop.clone()));
        }
        let sweeper = Arc::clone(&shared);
        tasks.spawn(async move {
            tokio::select! {
                () = sweeper.refusals.sweep() => {}
                () = sweeper.stop.cancelled() => {}
            }
        });
        for (port, listener) in [(Port::Release, release), (Port::Directory, directory)] {
            tasks.spawn(listen(Arc::clone(&shared), port, listener, tasks.clone()));
        }
        Ok(Self { shared, tasks })
    }

    /// Closes the doors: answers that are on their way are waited for, not for long.
    pub(crate) async fn close(self) {
        self.shared.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.shared.refusals.flush(Duration::ZERO).await;
    }
}

async fn listen(shared: Arc<Shared>, port: Port, listener: TcpListener, tasks: TaskTracker) {
    let limits = match port {
        Port::Release => shared.limits.clone(),
        Port::Directory => shared.limits.for_anybody(),
    };
    let (places, peers) = (Arc::new(Semaphore::new(limits.connections)), Peers::new(limits));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.stop.cancelled() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let network = Network::from(address.ip());
        let admitted = Arc::clone(&places)
            .try_acquire_owned()
            .ok()
            .and_then(|place| Some((place, peers.admit(network, Instant::now())?)));
        let Some((place, admission)) = admitted else {
            shared.metrics.dropped(port);
            continue;
        };
        let shared = Arc::clone(&shared);
        tasks.spawn(async move {
            let metrics = Arc::clone(&shared.metrics);
            let _open = metrics.opened(port);
            let ended = match port {
                Port::Release => released_to(shared, stream, network, admission).await,
                Port::Directory => shown_to(shared, stream, address, admission).await,
            };
            if ended.is_none() {
                metrics.failed(port);
            }
            drop(place);
        });
    }
}

/// A caller of the release port; `None` when the handshake fails.
async fn released_to(
    shared: Arc<Shared>,
    stream: TcpStream,
    network: Network,
    admission: Admission,
) -> Option<()> {
    prepare(&stream);
    let tls = Arc::clone(&shared.tls.borrow());
    let judged = tokio::select! {
        judged = tls.release.accept(stream) => judged,
        () = shared.stop.cancelled() => return Some(()),
    };
    let judged = judged.inspect_err(|error| debug!(%error, "a handshake failed")).ok()?;
    drop(tls);
    let http2 = judged.stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let peer = match judged.peer {
        Ok(peer) => Ok(peer),
        Err(error) => Err(turned_away(&shared, network, &error).await),
    };
    let manner = Manner { http2, once: peer.is_err(), limits: &shared.limits, stop: &shared.stop };
    let activity = Arc::new(Activity::new());
    let visitor =
        Arc::new(release::Visitor::new(Arc::clone(&shared), peer, admission, Arc::clone(&activity)));
    let served =
        serve(judged.stream, &manner, &activity, |request| release::answer(Arc::clone(&visitor), request));
    log_end(served.await);
    Some(())
}

/// A caller without good evidence: notes it, and says what it will be told.
async fn turned_away(shared: &Shared, network: Network, error: &PeerError) -> KmsError {
    shared.metrics.refused();
    let refusal = if error.is_temporary() {
        KmsError::new(
            KmsErrorCode::InternalError,
            format!("the evidence could not be verified now: {}", chain(error)),
        )
    } else {
        KmsError::new(KmsErrorCode::Unauthorized, chain(error))
    };
    let noted = shared.refusals.note(Who::Stranger(network), None, Caller::default(), &refusal).await;
    noted.err().unwrap_or(refusal)
}

/// A caller of the directory.
async fn shown_to(
    shared: Arc<Shared>,
    stream: TcpStream,
    address: SocketAddr,
    admission: Admission,
) -> Option<()> {
    prepare(&stream);
    let tls = Arc::clone(&shared.tls.borrow());
    let accepted = tokio::select! {
        accepted = tls.directory.accept(stream) => accepted,
        () = shared.stop.cancelled() => return Some(()),
    };
    let stream = accepted.inspect_err(|error| debug!(%error, "a handshake failed")).ok()?.stream;
    drop(tls);
    let http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let manner = Manner { http2, once: false, limits: &shared.limits, stop: &shared.stop };
    let activity = Arc::new(Activity::new());
    let visitor = Arc::new(directory::Visitor::new(
        Arc::clone(&shared),
        Network::from(address.ip()),
        admission,
        Arc::clone(&activity),
    ));
    let served =
        serve(stream, &manner, &activity, |request| directory::answer(Arc::clone(&visitor), request));
    log_end(served.await);
    Some(())
}

fn prepare(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection keeps waiting for full packets");
    }
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        debug!(%error, "a connection broke");
    }
}

impl Limits {
    /// For callers without a name, of whom little is wanted: some of their questions cost signatures.
    fn for_anybody(&self) -> Self {
        Self {
            connections: self.connections.div_ceil(4),
            connections_per_peer: self.connections_per_peer.div_ceil(4),
            requests_per_second: self.requests_per_second / 40.0,
            requests_at_once: self.requests_at_once / 20.0,
            ..self.clone()
        }
    }
}
