//! Ways from another node's ingress to ports of guests here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use cloister_fleet_tls::Peer;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::error::ApiError;
use super::refusal;
use super::vms::PathValue;
use crate::backends::Backends;
use crate::error::VmError;
use crate::ingress::idle::IdleLimited;

/// Most tunnels at once.
const MAX_TUNNELS: usize = 4096;
/// Longest time that a guest may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Longest time without a byte in either direction, as at the ingress itself.
const IDLE_LIMIT: Duration = Duration::from_mins(15);
/// What the connection is upgraded to: plain bytes.
const PROTOCOL: &str = "tcp";

/// What tunnels need.
#[derive(Clone)]
struct Tunnels {
    backends: Arc<dyn Backends>,
    places: Arc<Semaphore>,
    stopping: CancellationToken,
}

/// `GET /v1/vms/{uuid}/ports/{port}` for the nodes and the control plane of the installation. Tunnels end
/// with `stopping`.
pub(crate) fn router(backends: Arc<dyn Backends>, stopping: CancellationToken) -> Router {
    let tunnels = Tunnels { backends, places: Arc::new(Semaphore::new(MAX_TUNNELS)), stopping };
    Router::new().route("/v1/vms/{uuid}/ports/{port}", get(open)).with_state(tunnels)
}

/// Joins the connection of the request with a TCP port of the guest. It counts as a stream of the VM, and a
/// VM that is not ready gets none: the caller looks for another one.
async fn open(
    State(tunnels): State<Tunnels>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    PathValue((vm, port)): PathValue<(Uuid, u16)>,
    mut request: Request,
) -> Result<Response, ApiError> {
    if peer.identity.is_none() {
        return Ok(refusal(StatusCode::FORBIDDEN, "only nodes and the control plane may open a tunnel"));
    }
    if port == 0 || !asks_for_tunnel(request.headers()) {
        let how = "a port of a CVM, 1 to 65535, is reached with `connection: upgrade` and `upgrade: tcp`";
        return Err(VmError::Invalid(how.to_owned()).into());
    }
    let place = Arc::clone(&tunnels.places)
        .try_acquire_owned()
        .map_err(|_| VmError::OutOfResources("too many connections of other nodes lead here".to_owned()))?;
    let not_ready =
        VmError::Conflict("the CVM takes no requests now: it is off, starts, drains or is unwell");
    let flow = tunnels.backends.begin(vm).ok_or(not_ready)?;
    let mut guest = connect(&*tunnels.backends, vm, port).await?;
    let upgrade = hyper::upgrade::on(&mut request);
    let carry = async move {
        let _held = (place, flow);
        if let Ok(peer) = upgrade.await {
            let mut peer = IdleLimited::new(TokioIo::new(peer), IDLE_LIMIT);
            // An end that breaks off ends the other; nobody is left to tell.
            let _ = copy_bidirectional(&mut peer, &mut guest).await;
        }
    };
    tokio::spawn(tunnels.stopping.run_until_cancelled_owned(carry));
    let head = [(CONNECTION, "upgrade"), (UPGRADE, PROTOCOL)];
    Ok((StatusCode::SWITCHING_PROTOCOLS, head, Body::empty()).into_response())
}

async fn connect(backends: &dyn Backends, vm: Uuid, port: u16) -> Result<TcpStream, VmError> {
    let connected = timeout(CONNECT_LIMIT, backends.connect(vm, port)).await;
    let stream = connected.map_err(io::Error::from).flatten();
    let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    stream.map_err(|error| match error.kind() {
        io::ErrorKind::QuotaExceeded => {
            VmError::OutOfResources("too many ports of the CVM are in use".to_owned())
        }
        _ => VmError::GuestUnreachable("nothing takes connections at that port"),
    })
}

fn asks_for_tunnel(headers: &HeaderMap) -> bool {
    let names = |header, wanted: &str| {
        let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    names(CONNECTION, "upgrade") && names(UPGRADE, PROTOCOL)
}
