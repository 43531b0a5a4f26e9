//! Replicas behind other nodes: found through the control plane, reached by a tunnel over mutual TLS.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get as on_get;
use axum::{Json, Router};
use cloister_fleet_tls::{
    Authority, Credentials, Identity, JoinToken, Peer, TlsListener, client_config, enrolment_client_config,
    server_config,
};
use cloister_node_api::{Routes, VmRoute, paths};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::support::{
    APP_A, APP_B, Apps, VM_A, VM_A2, VM_B, check_switched, echo_app, exchange, get, ingress_among, raw_app,
    read_response, soon, switch, tls, websocket_like,
};
use crate::control_plane::ControlPlaneClient;
use crate::ingress::{Ingress, Limits};
use crate::peers::Fleet;
use crate::{Peers, Readiness, clock};

/// An installation with an authority, a control plane that only knows routes, and other nodes.
struct Installation {
    authority: Authority,
    _dir: tempfile::TempDir,
    known: Arc<Known>,
    control_plane: SocketAddr,
    stop: CancellationToken,
    _stop_at_the_end: DropGuard,
}

#[derive(Default)]
struct Known {
    /// What the control plane answers; `None` while it fails.
    routes: Mutex<Option<Vec<VmRoute>>>,
    questions: AtomicUsize,
}

impl Installation {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::load_or_create(dir.path(), clock::now()).unwrap();
        let stop = CancellationToken::new();
        let known = Arc::new(Known { routes: Mutex::new(Some(Vec::new())), ..Known::default() });
        let mut installation = Self {
            authority,
            _dir: dir,
            known: Arc::clone(&known),
            control_plane: SocketAddr::from(([127, 0, 0, 1], 0)),
            stop: stop.clone(),
            _stop_at_the_end: stop.drop_guard(),
        };
        let router =
            Router::new().route(&format!("{}/{{id}}", paths::ROUTES), on_get(routes)).with_state(known);
        installation.control_plane = installation.serve(&Identity::ControlPlane, router).await;
        installation
    }

    fn credentials(&self, identity: &Identity) -> Credentials {
        self.authority.issue(identity, &["127.0.0.1".to_owned()], clock::now()).unwrap()
    }

    async fn serve(&self, identity: &Identity, router: Router) -> SocketAddr {
        let tls = Arc::new(server_config(&self.credentials(identity), true).unwrap());
        let listener = TlsListener::bind("127.0.0.1:0".parse().unwrap(), tls).await.unwrap();
        let address = listener.address();
        let service = router.into_make_service_with_connect_info::<Peer>();
        let stopped = self.stop.clone().cancelled_owned();
        tokio::spawn(async move { axum::serve(listener, service).with_graceful_shutdown(stopped).await });
        address
    }

    /// A node that serves tunnels to these apps.
    async fn node(&self, name: &str, apps: &Arc<Apps>) -> SocketAddr {
        let router = crate::api::tunnel::router(Arc::clone(apps) as _, self.stop.clone());
        self.serve(&node(name), router).await
    }

    /// The other nodes, as node alpha knows them.
    fn peers(&self) -> Arc<dyn Peers> {
        let credentials = self.credentials(&node("alpha"));
        let tls = client_config(&credentials).unwrap();
        let control_plane = ControlPlaneClient::new(self.control_plane.to_string(), tls).unwrap();
        Arc::new(Fleet::new(control_plane, credentials).unwrap())
    }

    /// The ingress of node alpha, which has these apps itself.
    async fn ingress(&self, here: &Arc<Apps>) -> (Ingress, rustls::ClientConfig) {
        ingress_among(Arc::clone(here), self.peers(), Limits::default()).await
    }

    fn say(&self, routes: Vec<VmRoute>) {
        *self.known.routes.lock().unwrap() = Some(routes);
    }

    fn fall_silent(&self) {
        *self.known.routes.lock().unwrap() = None;
    }
}

async fn routes(State(known): State<Arc<Known>>, Path(id): Path<String>) -> Response {
    known.questions.fetch_add(1, Ordering::SeqCst);
    assert!(id.len() == 40, "{id}");
    match known.routes.lock().unwrap().clone() {
        Some(vms) => Json(Routes { vms: if id == APP_A { vms } else { Vec::new() } }).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn node(name: &str) -> Identity {
    Identity::Node(name.to_owned())
}

fn route(vm_uuid: Uuid, node: &str, endpoint: SocketAddr) -> VmRoute {
    VmRoute { vm_uuid, node: node.to_owned(), endpoint: endpoint.to_string(), ready: true }
}

fn host() -> String {
    format!("{APP_A}.apps.localhost")
}

#[tokio::test]
async fn an_app_that_only_another_node_has_is_reached_in_every_way() {
    let installation = Installation::new().await;
    let echo = raw_app(|mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let there = Apps::default().with(VM_A, 80, echo_app("far").await).with(VM_A, 81, websocket_like().await);
    let there = Arc::new(there.with(VM_A, 443, echo).with(VM_A, 50051, echo_app("far").await));
    let beta = installation.node("beta", &there).await;
    installation.say(vec![route(VM_A, "beta", beta)]);
    let (ingress, client) = installation.ingress(&Arc::new(Apps::none())).await;

    for _ in 0..2 {
        let answer = exchange(ingress.http_address(), &get(&host())).await;
        assert!(answer.contains("app far\nHTTP/1.1 GET /path?q=1\n"), "{answer}");
        assert!(answer.contains("x-forwarded-for: 127.0.0.1\n"), "{answer}");
    }
    assert_eq!(*there.connections.lock().unwrap(), [(VM_A, 80)], "a tunnel is used again");
    let body = "x".repeat(300_000);
    let request = format!(
        "POST / HTTP/1.1\r\nhost: {APP_A}-50051g.apps.localhost\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(ingress.http_address(), request.as_bytes()).await;
    assert!(answer.contains("app far\nHTTP/2.0 POST ") && answer.ends_with(&body), "{}", &answer[..200]);
    let mut tunnel = TcpStream::connect(ingress.http_address()).await.unwrap();
    tunnel.write_all(&switch(&format!("{APP_A}-81.apps.localhost"))).await.unwrap();
    check_switched(tunnel).await;
    // The guest echoes the `ClientHello`, which is no answer to it: it came through.
    let error = tls(ingress.https_address().unwrap(), client, &format!("{APP_A}s.apps.localhost")).await;
    assert!(error.unwrap_err().to_string().contains("ClientHello"));
}

#[tokio::test]
async fn replicas_here_and_there_share_the_load_and_the_nearest_idle_one_goes_first() {
    let installation = Installation::new().await;
    let here = Apps::default().with(VM_A, 80, echo_app("near").await).with(VM_A, 81, websocket_like().await);
    let here = Arc::new(here);
    let there = Arc::new(Apps::default().with(VM_A2, 80, echo_app("far").await).replica(APP_A, VM_A2));
    let beta = installation.node("beta", &there).await;
    installation.say(vec![route(VM_A2, "beta", beta), route(VM_A, "alpha", beta)]);
    let (ingress, _) = installation.ingress(&here).await;
    let near = exchange(ingress.http_address(), &get(&host())).await;
    assert!(near.contains("app near\n"), "{near}");
    let mut tunnel = TcpStream::connect(ingress.http_address()).await.unwrap();
    tunnel.write_all(&switch(&format!("{APP_A}-81.apps.localhost"))).await.unwrap();
    read_response(&mut tunnel).await;
    // With one here nobody waits for the control plane's word.
    soon(async { while !exchange(ingress.http_address(), &get(&host())).await.contains("app far\n") {} })
        .await;
    // The one here leaves: the other one gets everything.
    here.set(VM_A, Readiness::Leaving);
    let far = exchange(ingress.http_address(), &get(&host())).await;
    assert!(far.contains("app far\n"), "{far}");
}

#[tokio::test]
async fn a_node_that_turns_away_or_is_gone_costs_no_request() {
    let installation = Installation::new().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let there = Apps::default().replica(APP_A, VM_A2).with(VM_A, 80, echo_app("leaving").await);
    let there = Arc::new(there.with(VM_A2, 80, echo_app("staying").await));
    there.set(VM_A, Readiness::Leaving);
    let beta = installation.node("beta", &there).await;
    installation.say(vec![
        route(VM_A, "beta", beta),
        route(VM_A2, "gamma", gone),
        route(VM_A2, "beta", beta),
    ]);
    let (ingress, _) = installation.ingress(&Arc::new(Apps::none())).await;
    for _ in 0..4 {
        let request = format!(
            "POST / HTTP/1.1\r\nhost: {}\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody",
            host()
        );
        let answer = exchange(ingress.http_address(), request.as_bytes()).await;
        assert!(answer.contains("app staying\n") && answer.ends_with("body body"), "{answer}");
    }
    assert!(there.connections.lock().unwrap().iter().all(|(vm, _)| *vm == VM_A2));
}

#[tokio::test]
async fn without_a_ready_replica_anywhere_the_answer_says_so() {
    let installation = Installation::new().await;
    let (ingress, _) = installation.ingress(&Arc::new(Apps::none())).await;
    let unready = VmRoute { ready: false, ..route(VM_A, "beta", installation.control_plane) };
    installation.say(vec![unready]);
    let answer = exchange(ingress.http_address(), &get(&host())).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("The app is not ready"), "{answer}");
    let answer = exchange(ingress.http_address(), &get(&format!("{APP_B}.apps.localhost"))).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    installation.fall_silent();
    let answer = exchange(ingress.http_address(), &get(&format!("{}.apps.localhost", "cc".repeat(20)))).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("cannot be found out"), "{answer}");
    assert!(answer.contains("retry-after: 2\r\n"), "{answer}");
}

#[tokio::test]
async fn what_only_a_guest_says_of_itself_counts_when_the_control_plane_says_it_too() {
    let installation = Installation::new().await;
    let there = Arc::new(Apps::default().with(VM_A, 80, echo_app("far").await));
    let beta = installation.node("beta", &there).await;
    let here = Arc::new(Apps::none().claim(APP_A, VM_B).with(VM_B, 80, echo_app("near").await));
    for (named, expected) in [
        (Some(vec![route(VM_A, "beta", beta)]), "app far\n"),
        (Some(vec![route(VM_B, "alpha", beta)]), "app near\n"),
        (Some(Vec::new()), "HTTP/1.1 404"),
        (None, "HTTP/1.1 503"),
    ] {
        *installation.known.routes.lock().unwrap() = named;
        // One that remembers nothing.
        let (ingress, _) = installation.ingress(&here).await;
        for _ in 0..2 {
            let answer = exchange(ingress.http_address(), &get(&host())).await;
            assert!(answer.contains(expected), "{expected}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_node_that_is_not_the_one_named_learns_nothing() {
    let installation = Installation::new().await;
    let there = Arc::new(Apps::default().with(VM_A, 80, echo_app("impostor").await));
    let beta = installation.node("beta", &there).await;
    installation.say(vec![route(VM_A, "gamma", beta)]);
    let (ingress, _) = installation.ingress(&Arc::new(Apps::none())).await;
    let answer = exchange(ingress.http_address(), &get(&host())).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert_eq!(*there.connections.lock().unwrap(), []);
}

#[tokio::test]
async fn tunnels_lead_to_ready_guests_of_that_node_only_and_need_a_certificate() {
    let installation = Installation::new().await;
    let there = Arc::new(Apps::default().with(VM_A, 80, echo_app("far").await));
    there.set(VM_B, Readiness::Unhealthy);
    let beta = installation.node("beta", &there).await;
    let ask = async |tls: rustls::ClientConfig, method: &str, path: String, upgrade: &str| {
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let stream = TcpStream::connect(beta).await.unwrap();
        let mut stream = connector.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n{upgrade}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        soon(stream.read_exact(&mut answer)).await.unwrap();
        String::from_utf8(answer).unwrap()
    };
    let as_node = || client_config(&installation.credentials(&node("alpha"))).unwrap();
    let tcp = "upgrade: tcp";
    let port = |vm: Uuid, port: &str| format!("{}/{vm}/ports/{port}", paths::VMS);
    assert_eq!(ask(as_node(), "GET", port(VM_A, "80"), tcp).await, "HTTP/1.1 101");
    assert_eq!(ask(as_node(), "GET", port(VM_A, "81"), tcp).await, "HTTP/1.1 502");
    assert_eq!(ask(as_node(), "GET", port(VM_B, "80"), tcp).await, "HTTP/1.1 409");
    assert_eq!(ask(as_node(), "GET", port(Uuid::nil(), "80"), tcp).await, "HTTP/1.1 409");
    assert_eq!(ask(as_node(), "GET", port(VM_A, "0"), tcp).await, "HTTP/1.1 400");
    assert_eq!(ask(as_node(), "GET", port(VM_A, "65536"), tcp).await, "HTTP/1.1 400");
    assert_eq!(ask(as_node(), "GET", port(VM_A, "80"), "upgrade: h2c").await, "HTTP/1.1 400");
    assert_eq!(ask(as_node(), "POST", port(VM_A, "80"), tcp).await, "HTTP/1.1 405");
    let token = JoinToken::new(installation.authority.certificate_der(), [1; 32]);
    let anonymous = enrolment_client_config(token).unwrap();
    assert_eq!(ask(anonymous, "GET", port(VM_A, "80"), tcp).await, "HTTP/1.1 403");
}

#[tokio::test]
async fn what_is_known_is_used_while_the_control_plane_is_away() {
    let installation = Installation::new().await;
    let there = Arc::new(Apps::default().with(VM_A, 80, echo_app("far").await));
    let beta = installation.node("beta", &there).await;
    installation.say(vec![route(VM_A, "beta", beta)]);
    let (ingress, _) = installation.ingress(&Arc::new(Apps::none())).await;
    let answer = exchange(ingress.http_address(), &get(&host())).await;
    assert!(answer.contains("app far\n"), "{answer}");
    installation.fall_silent();
    let before = installation.known.questions.load(Ordering::SeqCst);
    while installation.known.questions.load(Ordering::SeqCst) < before + 2 {
        let answer = exchange(ingress.http_address(), &get(&host())).await;
        assert!(answer.contains("app far\n"), "{answer}");
    }
}

#[tokio::test]
async fn a_drain_on_the_other_node_ends_when_the_tunnels_do() {
    let installation = Installation::new().await;
    let there = Arc::new(Apps::default().with(VM_A, 80, echo_app("far").await));
    let beta = installation.node("beta", &there).await;
    installation.say(vec![route(VM_A, "beta", beta)]);
    let (ingress, _) = installation.ingress(&Arc::new(Apps::none())).await;
    exchange(ingress.http_address(), &get(&host())).await;
    let flows = there.flows(VM_A);
    assert!(flows.count() > 0, "an idle tunnel may get a request at any time");
    there.set(VM_A, Readiness::Leaving);
    // The other ingress lets go of it by itself.
    soon(flows.ended()).await;
}
