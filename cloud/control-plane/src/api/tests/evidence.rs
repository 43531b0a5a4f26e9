//! The evidence of CVMs, with a node that passes on what their guests present.

use std::sync::Arc;

use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use cloister_evidence::report_data::padded;
use cloister_fleet_tls::{Identity, TlsListener, server_config};
use cloister_node_api::{NodeError, NodeErrorCode};
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Answer, Installation, report};
use crate::clock::Clock;
use crate::evidence::look;
use crate::operations::CvmStatus;
use crate::store::ObservedVm;

/// How a guest departs from the truth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guest {
    Honest,
    Silent,
    WithoutQuote,
    /// Presents what it presented to somebody else.
    Replays,
    /// Runs another compose document.
    OtherCompose,
    /// Says more than it measured.
    LongerLog,
    /// Takes the question and never answers.
    Hangs,
    /// Is another instance of the same application.
    OtherInstance,
}

#[derive(Deserialize)]
struct Asked {
    report_data: String,
}

struct Scene {
    installation: Arc<Installation>,
    vm: Value,
    guest: Arc<Mutex<Guest>>,
    /// One for each question that hangs.
    hanging: Arc<Semaphore>,
}

/// An installation with one CVM that runs, on a node that is online.
async fn scene() -> Scene {
    // Certificates are checked against the machine's clock, so the installation's must agree with it.
    let installation = Arc::new(Installation::with_clock(Clock::system()).await);
    let guest = Arc::new(Mutex::new(Guest::Honest));
    let hanging = Arc::new(Semaphore::new(0));
    let (of_node, of_guest, hang) = (Arc::clone(&installation), Arc::clone(&guest), Arc::clone(&hanging));
    let answer = async move |Path(vm): Path<uuid::Uuid>, Query(asked): Query<Asked>| {
        let guest = *of_guest.lock();
        if guest == Guest::Silent {
            let error = NodeError { code: NodeErrorCode::GuestUnreachable, message: "no answer".into() };
            return (StatusCode::BAD_GATEWAY, Json(error)).into_response();
        }
        if guest == Guest::Hangs {
            hang.add_permits(1);
            std::future::pending::<()>().await;
        }
        let cvm = of_node.app.store.cvm_by_uuid(vm).await.unwrap().unwrap();
        // As guests do, which take no more from outside.
        let challenge: [u8; 32] = hex::decode(asked.report_data).unwrap().try_into().unwrap();
        let mut report_data = padded(&challenge).unwrap();
        let (mut compose, mut instance) = (cvm.app_compose.clone(), [2; 20]);
        match guest {
            Guest::Replays => report_data = [0; 64],
            Guest::OtherCompose => compose.push(' '),
            Guest::OtherInstance => instance = [3; 20],
            _ => {}
        }
        let mut document = of_node.tee.document(&compose, cvm.app_id, instance, report_data);
        match guest {
            Guest::WithoutQuote => document.quote = None,
            Guest::LongerLog => {
                let mut events: Vec<Value> = serde_json::from_str(&document.event_log).unwrap();
                events.push(events.last().unwrap().clone());
                document.event_log = serde_json::to_string(&events).unwrap();
            }
            _ => {}
        }
        Json(document).into_response()
    };
    let router = Router::new().route("/v1/vms/{vm}/attestation", get(answer));
    let names = ["127.0.0.1".to_owned()];
    let identity = Identity::Node("local".to_owned());
    let app = &installation.app;
    let credentials = app.authority.issue(&identity, &names, app.clock.now()).unwrap();
    let tls = Arc::new(server_config(&credentials, true).unwrap());
    let listener = TlsListener::bind("127.0.0.1:0".parse().unwrap(), tls).await.unwrap();
    let mut here = report(65536, false);
    here.endpoint = listener.address().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    installation.report(&here).await;
    let vm = installation.create("my-app-01").await;
    installation.settle(&vm, CvmStatus::Running).await;
    Scene { installation, vm, guest, hanging }
}

impl Scene {
    async fn attestation(&self) -> Value {
        let path = format!("/cvms/{}/attestation", self.vm["id"]);
        self.installation.call("GET", &path, Value::Null).await.expect(200).json()
    }

    /// Asked by nobody in particular.
    async fn of_app(&self, rest: &str) -> Answer {
        let path = format!("/apps/{}/attestations{rest}", self.vm["app_id"].as_str().unwrap());
        self.installation.call_with(&[], "GET", &path, Value::Null).await
    }

    fn is(&self, guest: Guest) {
        *self.guest.lock() = guest;
    }

    async fn devices(&self) -> Value {
        look(&self.installation.app).await.unwrap();
        self.installation.call_with(&[], "GET", "/attestations/device_ids", Value::Null).await.json()
    }
}

/// A document with what differs in every run replaced; the length of certificates differs too.
fn stable(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > 128 => "[long text]".into(),
        Value::String(text) if text.len() >= 32 => format!("[{} characters]", text.len()).into(),
        Value::Array(items) => items.into_iter().map(stable).collect(),
        Value::Object(map) => map.into_iter().map(|(name, value)| (name, stable(value))).collect(),
        other => other,
    }
}

#[tokio::test]
async fn a_cvm_presents_its_evidence() {
    let scene = scene().await;
    let answer = scene.attestation().await;
    assert_eq!(answer["verification"]["verified"], true, "{answer}");
    assert_eq!((&answer["is_online"], &answer["error"]), (&json!(true), &Value::Null));
    let app_compose = answer["tcb_info"]["app_compose"].as_str().unwrap();
    let row = scene.installation.row(&scene.vm).await;
    assert_eq!(cloister_app_compose::ComposeHash::of(app_compose.as_bytes()), row.compose_hash);
    insta::assert_json_snapshot!(stable(answer));
}

#[tokio::test]
async fn a_guest_that_does_not_answer_is_described() {
    let scene = scene().await;
    for (guest, reason) in
        [(Guest::Silent, "no answer"), (Guest::WithoutQuote, "the guest presented no quote")]
    {
        scene.is(guest);
        let answer = scene.attestation().await;
        assert_eq!(answer["is_online"], false);
        assert!(answer["error"].as_str().unwrap().contains(reason), "{answer}");
        for member in ["app_certificates", "tcb_info", "verification"] {
            assert_eq!(answer.get(member), Some(&Value::Null), "{member} is present");
        }
        assert!(answer["name"].is_string() && answer["compose_file"].is_string());
        assert!(answer["is_public"].is_boolean());
    }
}

#[tokio::test]
async fn no_lie_of_a_guest_is_verified_and_no_node_gets_a_platform_by_one() {
    let scene = scene().await;
    let row = scene.installation.row(&scene.vm).await;
    let instance_id = Some("02".repeat(20).parse().unwrap());
    let seen = ObservedVm { instance_id, ..ObservedVm::default() };
    let mut change = scene.installation.app.store.change().await.unwrap();
    change.observe_cvm(row.id, &seen, 0).await.unwrap();
    change.commit().await.unwrap();
    assert_eq!(scene.attestation().await["verification"]["verified"], true);
    for (guest, reason) in [
        (Guest::Replays, "not fresh"),
        (Guest::OtherCompose, "compose hash"),
        (Guest::LongerLog, "RTMR 3"),
        (Guest::OtherInstance, "instance id"),
    ] {
        scene.is(guest);
        let answer = scene.attestation().await;
        assert_eq!(answer["verification"]["verified"], false);
        let reasons = answer["verification"]["reasons"].to_string();
        assert!(reasons.contains(reason), "{reason}: {reasons}");
        assert_eq!(scene.devices().await, json!([]), "{reason}");
        let instance = &scene.of_app("").await.expect(200).json()["instances"][0];
        assert_eq!((&instance["ppid"], &instance["device_id"]), (&json!(""), &json!("")));
    }
}

#[tokio::test]
async fn a_node_is_the_platform_that_its_cvms_prove() {
    let scene = scene().await;
    let nodes = async || {
        let path = "/attestations/nodes";
        scene.installation.call_with(&[], "GET", path, Value::Null).await.expect(200).json()
    };
    let before = &nodes().await[0];
    assert_eq!((&before["ppid"], &before["device_id"]), (&json!(""), &json!("")));
    scene.is(Guest::Silent);
    assert_eq!(scene.devices().await, json!([]));
    scene.is(Guest::Honest);
    let devices = scene.devices().await;
    let ppid = scene.installation.tee.ppid();
    let ppids = scene.installation.call_with(&[], "GET", "/attestations/ppids", Value::Null).await.json();
    assert_eq!(ppids, json!([ppid]));
    let node = &nodes().await[0];
    assert_eq!((&node["ppid"], &node["device_id"]), (&json!(ppid), &devices[0]));
    // It is known for a day: what the guest says now changes nothing.
    scene.is(Guest::Silent);
    assert_eq!(scene.devices().await, devices);
    let offers = scene.installation.call("GET", "/teepods/available", Value::Null).await.json();
    assert_eq!(offers["nodes"][0]["device_id"], devices[0]);
}

/// A node can pass on what a CVM on another one answers.
#[tokio::test]
async fn a_node_is_not_the_platform_that_was_certified_for_another() {
    let scene = scene().await;
    scene.installation.tee.move_to("another");
    assert_eq!(scene.devices().await, json!([]));
    let answer = scene.attestation().await;
    assert_eq!(answer["verification"]["verified"], false, "{answer}");
    assert!(answer["verification"]["reasons"].to_string().contains("another node"), "{answer}");
    let instance = &scene.of_app("").await.expect(200).json()["instances"][0];
    assert_eq!((&instance["ppid"], &instance["device_id"]), (&json!(""), &json!("")));
    let instance = &scene.of_app("/tcb-evaluation").await.expect(200).json()["instances"][0];
    assert_eq!((&instance["evaluation_ok"], &instance["ppid"]), (&Value::Null, &json!("")));
    assert!(instance["error"].as_str().unwrap().contains("another node"), "{instance}");
}

#[tokio::test]
async fn the_platform_of_evidence_that_does_not_hold_is_not_evaluated() {
    let scene = scene().await;
    for guest in [Guest::Replays, Guest::OtherCompose, Guest::LongerLog] {
        scene.is(guest);
        let instance = &scene.of_app("/tcb-evaluation").await.expect(200).json()["instances"][0];
        assert_eq!((&instance["evaluation_ok"], &instance["ppid"]), (&Value::Null, &json!("")));
        assert!(instance["error"].is_string());
    }
}

#[tokio::test]
async fn strangers_who_ask_for_the_evidence_of_an_app_do_not_keep_it_from_its_workspace() {
    let scene = scene().await;
    scene.is(Guest::Hangs);
    let strangers = join_all((0..6).map(|_| scene.of_app("")));
    let owner = async {
        let _hanging = scene.hanging.acquire_many(4).await.unwrap();
        scene.is(Guest::Honest);
        scene.attestation().await
    };
    tokio::select! {
        _ = strangers => panic!("they wait for the guest"),
        answer = owner => assert_eq!(answer["verification"]["verified"], true, "{answer}"),
    }
}

#[tokio::test]
async fn the_evidence_of_an_app() {
    let scene = scene().await;
    let answer = scene.of_app("").await.expect(200).json();
    let instance = &answer["instances"][0];
    assert_eq!(instance["ppid"], scene.installation.tee.ppid());
    assert_eq!(instance["verification"]["verified"], true, "{answer}");
    insta::assert_json_snapshot!(stable(answer));

    let evaluation = scene.of_app("/tcb-evaluation").await.expect(200).json();
    insta::assert_json_snapshot!(stable(evaluation));
    scene.installation.tee.says.lock().status = "OutOfDate";
    let evaluation = scene.of_app("/tcb-evaluation").await.expect(200).json();
    let instance = &evaluation["instances"][0];
    assert_eq!(
        (&instance["evaluation_ok"], &instance["evaluation_status"]),
        (&json!(false), &json!("OutOfDate")),
        "the kept collateral still says otherwise"
    );
    let verified = scene.attestation().await;
    assert_eq!(verified["verification"]["tcb_status"], "UpToDate");
    scene.installation.tee.says.lock().is_down = true;
    let instance = &scene.of_app("/tcb-evaluation").await.expect(200).json()["instances"][0];
    assert_eq!((&instance["evaluation_ok"], &instance["ppid"]), (&Value::Null, &json!("")));
    assert!(instance["error"].is_string());
}

#[tokio::test]
async fn what_an_app_keeps_to_itself_only_its_workspace_sees() {
    let scene = scene().await;
    let body = json!({"name": "private-app", "compose_file": {
        "name": "", "docker_compose_file": "services:\n  web:\n    image: nginx:1\n", "public_tcbinfo": false,
    }});
    let installation = &scene.installation;
    let provision = installation.call("POST", "/cvms/provision", body).await.expect(200).json();
    let body = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
    let vm = installation.call("POST", "/cvms", body).await.expect(200).json();
    installation.settle(&vm, CvmStatus::Running).await;
    for rest in ["", "/tcb-evaluation"] {
        let path = format!("/apps/{}/attestations{rest}", vm["app_id"].as_str().unwrap());
        let as_nobody = installation.call_with(&[], "GET", &path, Value::Null).await;
        let headers = [("x-api-key", installation.admin.as_str())];
        let as_foreigner = installation.call_with(&headers, "GET", &path, Value::Null).await;
        let unknown = format!("/apps/{}/attestations{rest}", "0".repeat(40));
        let of_unknown = installation.call_with(&[], "GET", &unknown, Value::Null).await;
        for answer in [&as_nobody, &as_foreigner, &of_unknown] {
            assert_eq!((answer.summary().as_str(), &answer.text), ("404 plain", &of_unknown.text));
        }
        let own = installation.call("GET", &path, Value::Null).await.expect(200).json();
        assert_eq!(own["instances"][0]["name"], "private-app");
        let headers = [("x-api-key", "phak_unknown")];
        assert_eq!(installation.call_with(&headers, "GET", &path, Value::Null).await.summary(), "401 plain");
    }
}
