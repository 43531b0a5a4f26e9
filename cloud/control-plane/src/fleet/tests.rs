//! Enrolment, reports and reconciliation over real mutual TLS, with a node that is only an HTTP server.

mod metering;
mod placement;
mod platforms;
mod routes;
mod scheduler;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use cloister_fleet_tls::{
    Authority, Credentials, JoinToken, TlsListener, client_config, enrolment_client_config,
    make_node_request, server_config,
};
use cloister_node_api::{
    EnrolRequest, EnrolResponse, ExitReason, NodeCapacity, NodeError, NodeErrorCode, NodeReport, Platform,
    ReportReceipt, VmHealth, VmReport, VmState, paths,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tempfile::TempDir;
use uuid::Uuid;

use crate::clock::Clock;
use crate::operations::{CvmStatus, NodeCallError, Nodes};
use crate::store::Store;
use crate::store::tests::{cvm, ground};
use crate::{Config, ControlPlane};

struct Installation {
    _dir: TempDir,
    control_plane: ControlPlane,
    clock: Clock,
}

async fn installation() -> Installation {
    installation_in(false).await
}

async fn installation_in(production: bool) -> Installation {
    let dir = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let clock = Clock::manual(Timestamp::from_second(1_790_000_000).unwrap());
    let mut config = Config::embedded(dir.path().to_owned(), any, any);
    config.clock = clock.clone();
    config.production = production;
    let control_plane = ControlPlane::start(config).await.unwrap();
    Installation { _dir: dir, control_plane, clock }
}

impl Installation {
    fn store(&self) -> &Store {
        &self.control_plane.app.store
    }

    fn node_url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.control_plane.node_address().port())
    }

    async fn enrol(&self, token: &JoinToken, name: &str) -> (StatusCode, Option<Credentials>) {
        let (private_key, request) = make_node_request().unwrap();
        let http = client(enrolment_client_config(token.clone()).unwrap());
        let body = EnrolRequest {
            join_token: token.to_string(),
            name: name.to_owned(),
            certificate_request: request,
            subject_alternative_names: vec!["localhost".to_owned()],
        };
        let answer = http.post(self.node_url(paths::ENROL)).json(&body).send().await.unwrap();
        let status = answer.status();
        let credentials = answer.json::<EnrolResponse>().await.ok().map(|enrolled| Credentials {
            certificate: enrolled.certificate,
            private_key,
            authority: enrolled.authority,
        });
        (status, credentials)
    }

    async fn report(&self, credentials: &Credentials, report: &NodeReport) -> reqwest::Response {
        let http = client(client_config(credentials).unwrap());
        http.post(self.node_url(paths::REPORT)).json(report).send().await.unwrap()
    }
}

fn client(tls: rustls::ClientConfig) -> reqwest::Client {
    reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build().unwrap()
}

fn report(endpoint: &str, vms: Vec<VmReport>) -> NodeReport {
    NodeReport {
        version: "0.1.0".to_owned(),
        region: "local".to_owned(),
        endpoint: endpoint.to_owned(),
        ingress_url_template: "http://{host}.apps.localhost:8080".to_owned(),
        ingress_domain: "apps.localhost".to_owned(),
        platform: Platform::Emulation,
        maintenance: false,
        capacity: NodeCapacity { cvm_slots: 4, vcpu: 8, memory_mb: 8192, disk_gb: 100 },
        images: vec![],
        vms,
        gpus: vec![],
        port_range: None,
    }
}

fn vm(vm_uuid: Uuid, state: VmState, boot_progress: Option<&str>) -> VmReport {
    VmReport { boot_progress: boot_progress.map(str::to_owned), ..VmReport::new(vm_uuid, state) }
}

/// Calls that a node received, as `METHOD path`.
type Calls = Arc<Mutex<Vec<String>>>;

/// A node's listener that notes every call and knows no VM.
async fn fake_node(credentials: &Credentials) -> (String, Calls) {
    let calls = Calls::default();
    let config = Arc::new(server_config(credentials, false).unwrap());
    let listener = TlsListener::bind("127.0.0.1:0".parse().unwrap(), config).await.unwrap();
    let endpoint = format!("localhost:{}", listener.address().port());
    let router = Router::new().fallback(note).with_state(Arc::clone(&calls));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (endpoint, calls)
}

async fn note(State(calls): State<Calls>, method: Method, uri: Uri) -> Response {
    calls.lock().push(format!("{method} {}", uri.path()));
    let error = NodeError { code: NodeErrorCode::UnknownVm, message: "no such VM".to_owned() };
    if method == Method::DELETE {
        return StatusCode::NO_CONTENT.into_response();
    }
    (StatusCode::NOT_FOUND, Json(error)).into_response()
}

async fn eventually(mut holds: impl FnMut() -> bool) {
    for _ in 0..24_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came true");
}

#[tokio::test]
async fn a_node_joins_reports_and_goes_offline() {
    let installation = installation().await;
    let token = installation.control_plane.invite_node().await.unwrap();
    let (status, credentials) = installation.enrol(&token, "alpha").await;
    assert_eq!(status, StatusCode::OK);
    let credentials = credentials.unwrap();
    let answer = installation.report(&credentials, &report("localhost:1", vec![])).await;
    let receipt: ReportReceipt = answer.json().await.unwrap();

    let fleet = &installation.control_plane.app.fleet;
    let standing = fleet.standing(receipt.node_id).await.unwrap().unwrap();
    assert_eq!((standing.node.name.as_str(), standing.status.as_str()), ("alpha", "ONLINE"));
    installation.clock.advance_ms(60_000);
    let standing = fleet.standing(receipt.node_id).await.unwrap().unwrap();
    assert_eq!(standing.status.as_str(), "OFFLINE");
    installation.control_plane.stop().await;
}

#[tokio::test]
async fn invitations_are_for_one_node_and_names_are_checked() {
    let installation = installation().await;
    let token = installation.control_plane.invite_node().await.unwrap();
    assert_eq!(installation.enrol(&token, "Not A Label").await.0, StatusCode::FORBIDDEN);
    assert_eq!(installation.enrol(&token, "alpha").await.0, StatusCode::OK);
    assert_eq!(installation.enrol(&token, "beta").await.0, StatusCode::FORBIDDEN);
    let forged = JoinToken::new(installation.control_plane.app.authority.certificate_der(), [7; 32]);
    assert_eq!(installation.enrol(&forged, "gamma").await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn only_enrolled_nodes_may_report() {
    let installation = installation().await;
    let app = &installation.control_plane.app;
    let names = ["localhost".to_owned()];
    let control_plane = cloister_fleet_tls::Identity::ControlPlane;
    let not_a_node = app.authority.issue(&control_plane, &names, app.clock.now()).unwrap();
    let refused = installation.report(&not_a_node, &report("localhost:1", vec![])).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);

    let never_enrolled = cloister_fleet_tls::Identity::Node("ghost".to_owned());
    let ghost = app.authority.issue(&never_enrolled, &names, app.clock.now()).unwrap();
    let refused = installation.report(&ghost, &report("localhost:1", vec![])).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);

    let elsewhere = tempfile::tempdir().unwrap();
    let foreign = Authority::load_or_create(elsewhere.path(), app.clock.now()).unwrap();
    let stranger = foreign.issue(&never_enrolled, &names, app.clock.now()).unwrap();
    let mut stranger = stranger;
    stranger.authority = app.authority.certificate_pem().to_owned();
    let http = client(client_config(&stranger).unwrap());
    let outcome = http.post(installation.node_url(paths::REPORT)).json(&report("x:1", vec![])).send();
    assert!(outcome.await.is_err(), "the handshake itself fails");
}

#[tokio::test]
async fn leftovers_are_removed_and_statuses_follow_the_truth() {
    let installation = installation().await;
    let store = installation.store();
    let mut ground = ground(store).await;
    let token = installation.control_plane.invite_node().await.unwrap();
    let credentials = installation.enrol(&token, "beta").await.1.unwrap();
    ground.node = store.node_by_name("beta").await.unwrap().unwrap().id;
    let (endpoint, calls) = fake_node(&credentials).await;

    let (fell_over, should_be_off) =
        (cvm(store, &ground, 1, "web-1").await, cvm(store, &ground, 2, "web-2").await);
    let drained = cvm(store, &ground, 3, "web-3").await;
    let mut change = store.change().await.unwrap();
    change.set_cvm_status(fell_over.id, CvmStatus::Running, 0).await.unwrap();
    change.set_cvm_status(should_be_off.id, CvmStatus::Stopped, 0).await.unwrap();
    change.set_cvm_status(drained.id, CvmStatus::Running, 0).await.unwrap();
    change.commit().await.unwrap();
    let stranger = Uuid::from_bytes([77; 16]);
    let vms = vec![
        VmReport { exit_reason: Some(ExitReason::Restarted), ..vm(fell_over.vm_uuid, VmState::Exited, None) },
        vm(should_be_off.vm_uuid, VmState::Running, Some("done")),
        vm(stranger, VmState::Running, Some("done")),
        VmReport { draining: true, ..vm(drained.vm_uuid, VmState::Running, Some("done")) },
    ];
    let answer = installation.report(&credentials, &report(&endpoint, vms)).await;
    assert_eq!(answer.status(), StatusCode::OK);

    let fell_over = store.cvm(fell_over.id).await.unwrap().unwrap();
    assert_eq!(fell_over.status, CvmStatus::Stopped);
    assert_eq!(fell_over.exit_reason.as_deref(), Some("the guest's kernel panicked or restarted"));
    assert_eq!(fell_over.boot_error, None);
    let expected = [
        format!("DELETE /v1/vms/{stranger}"),
        format!("POST /v1/vms/{}/stop", should_be_off.vm_uuid),
        format!("DELETE /v1/vms/{}/drain", drained.vm_uuid),
    ];
    eventually(|| expected.iter().all(|call| calls.lock().contains(call))).await;
}

#[tokio::test]
async fn an_invitation_is_not_good_for_the_name_of_another_node() {
    let installation = installation().await;
    let (first, second) = (
        installation.control_plane.invite_node().await.unwrap(),
        installation.control_plane.invite_node().await.unwrap(),
    );
    assert_eq!(installation.enrol(&first, "alpha").await.0, StatusCode::OK);
    assert_eq!(installation.enrol(&second, "alpha").await.0, StatusCode::FORBIDDEN);
    assert_eq!(installation.enrol(&first, "alpha").await.0, StatusCode::OK, "a lost answer is repeated");
    assert_eq!(installation.enrol(&second, "beta").await.0, StatusCode::OK);
}

#[tokio::test]
async fn what_is_meant_for_one_node_never_reaches_another() {
    let installation = installation().await;
    let mut credentials = Vec::new();
    for name in ["alpha", "beta"] {
        let token = installation.control_plane.invite_node().await.unwrap();
        credentials.push(installation.enrol(&token, name).await.1.unwrap());
    }
    let (of_beta, calls) = fake_node(&credentials[1]).await;
    // Alpha says that it lives where beta does, and that it has a VM that nobody knows.
    let stranger = vm(Uuid::from_bytes([77; 16]), VmState::Running, Some("done"));
    let answer = installation.report(&credentials[0], &report(&of_beta, vec![stranger])).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let alpha = installation.store().node_by_name("alpha").await.unwrap().unwrap().id;
    let outcome = installation.control_plane.app.fleet.remove(alpha, Uuid::from_bytes([77; 16])).await;
    assert!(matches!(outcome, Err(NodeCallError::Unreachable { .. })));
    assert!(calls.lock().is_empty());
}

#[tokio::test]
async fn strangers_are_turned_away_before_their_report_is_read() {
    let installation = installation().await;
    let app = &installation.control_plane.app;
    let control_plane = cloister_fleet_tls::Identity::ControlPlane;
    let names = ["localhost".to_owned()];
    let not_a_node = app.authority.issue(&control_plane, &names, app.clock.now()).unwrap();
    let http = client(client_config(&not_a_node).unwrap());
    let answer = http.post(installation.node_url(paths::REPORT)).body("not a report").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let flood = vec![b' '; 65 * 1024];
    let answer = http
        .post(installation.node_url(paths::ENROL))
        .header("content-type", "application/json")
        .body(flood)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_report_that_is_older_than_a_change_settles_nothing() {
    let installation = installation().await;
    let store = installation.store();
    let mut ground = ground(store).await;
    let token = installation.control_plane.invite_node().await.unwrap();
    let credentials = installation.enrol(&token, "beta").await.1.unwrap();
    ground.node = store.node_by_name("beta").await.unwrap().unwrap().id;
    let (endpoint, calls) = fake_node(&credentials).await;
    let row = cvm(store, &ground, 1, "web-1").await;
    let mut change = store.change().await.unwrap();
    change.set_cvm_status(row.id, CvmStatus::Running, installation.clock.now_ms()).await.unwrap();
    change.commit().await.unwrap();

    // Written before the node was asked to prepare the VM.
    installation.report(&credentials, &report(&endpoint, vec![])).await;
    assert_eq!(store.cvm(row.id).await.unwrap().unwrap().status, CvmStatus::Running);
    installation.clock.advance_ms(5000);
    installation.report(&credentials, &report(&endpoint, vec![])).await;
    assert_eq!(store.cvm(row.id).await.unwrap().unwrap().status, CvmStatus::Error);

    // It was there all the time. What is not healthy yet is no good news.
    installation.clock.advance_ms(5000);
    let up = vm(row.vm_uuid, VmState::Running, Some("done"));
    let starting = VmReport { health: Some(VmHealth::Starting), ..up.clone() };
    installation.report(&credentials, &report(&endpoint, vec![starting])).await;
    assert_eq!(store.cvm(row.id).await.unwrap().unwrap().status, CvmStatus::Error);
    // The reason of the error goes with the error.
    installation.clock.advance_ms(5000);
    installation.report(&credentials, &report(&endpoint, vec![up])).await;
    let settled = store.cvm(row.id).await.unwrap().unwrap();
    assert_eq!((settled.status, settled.boot_error), (CvmStatus::Running, None));
    assert!(calls.lock().is_empty());
}

#[tokio::test]
async fn nobody_who_waited_is_remembered() {
    let changes = crate::fleet::VmChanges::default();
    let (told, gave_up) = (Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16]));
    let brief = Duration::from_millis(1);
    assert!(tokio::time::timeout(brief, changes.changed(gave_up)).await.is_err());
    let waiter = {
        let changes = changes.clone();
        tokio::spawn(async move { changes.changed(told).await })
    };
    while changes.waited_for() == 0 {
        tokio::task::yield_now().await;
    }
    changes.tell(told);
    waiter.await.unwrap();
    assert_eq!(changes.waited_for(), 0);
}

#[tokio::test]
async fn calls_to_a_silent_node_are_transient_and_refusals_are_passed_on() {
    let installation = installation().await;
    let token = installation.control_plane.invite_node().await.unwrap();
    let credentials = installation.enrol(&token, "alpha").await.1.unwrap();
    let fleet = &installation.control_plane.app.fleet;
    let node = installation.store().node_by_name("alpha").await.unwrap().unwrap().id;
    let vm = Uuid::nil();
    let never_reported = fleet.look(node, vm).await.unwrap_err();
    assert!(never_reported.is_transient(), "{never_reported}");

    installation.report(&credentials, &report("localhost:1", vec![])).await;
    assert!(fleet.look(node, vm).await.unwrap_err().is_transient());

    let (endpoint, _calls) = fake_node(&credentials).await;
    installation.report(&credentials, &report(&endpoint, vec![])).await;
    let refused = fleet.look(node, vm).await.unwrap_err();
    assert!(matches!(&refused, NodeCallError::Refused(error) if error.code == NodeErrorCode::UnknownVm));
    assert!(fleet.remove(node, vm).await.is_ok());
    assert!(matches!(fleet.look(node + 1, vm).await, Err(NodeCallError::NodeGone)));
}
