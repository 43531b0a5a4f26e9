//! Where an app runs, as nodes are told.

use cloister_app_compose::AppId;
use cloister_node_api::Routes;

use super::*;
use crate::store::NewCvm;
use crate::store::tests::{Ground, provision};

const APP: u8 = 7;

/// An installation with two nodes and the ground that CVMs stand on.
struct TwoNodes {
    installation: Installation,
    ground: Ground,
    alpha: (i64, Credentials),
    beta: (i64, Credentials),
}

async fn two_nodes() -> TwoNodes {
    let installation = installation().await;
    let store = installation.store();
    let mut change = store.change().await.unwrap();
    let user = change.insert_user("ada", "ada@example.org", "user", 0).await.unwrap();
    let workspace = change.insert_workspace("ada-lab", "Ada Lab", [9; 20], user, 0).await.unwrap();
    change.commit().await.unwrap();
    let mut nodes = Vec::new();
    for name in ["alpha", "beta"] {
        let token = installation.control_plane.invite_node().await.unwrap();
        let credentials = installation.enrol(&token, name).await.1.unwrap();
        nodes.push((store.node_by_name(name).await.unwrap().unwrap().id, credentials));
    }
    let [alpha, beta] = nodes.try_into().ok().unwrap();
    let ground = Ground { user, workspace, node: alpha.0 };
    TwoNodes { installation, ground, alpha, beta }
}

impl TwoNodes {
    /// A running replica of the app on a node.
    async fn replica(&self, node: i64, seed: u8) -> Uuid {
        let ground = Ground { node, ..self.ground };
        let mut what = provision(&ground, APP, &format!("web-{seed}"));
        what.node_id = node;
        let vm_uuid = Uuid::from_bytes([seed; 16]);
        let new = NewCvm::of_provision(&what, ground.user, vm_uuid, None);
        let mut change = self.installation.store().change().await.unwrap();
        let id = change.insert_cvm(&new, 0).await.unwrap();
        change.set_cvm_status(id, CvmStatus::Running, 0).await.unwrap();
        change.commit().await.unwrap();
        vm_uuid
    }

    async fn set_status(&self, vm: Uuid, status: CvmStatus) {
        let store = self.installation.store();
        let id = store.cvm_by_uuid(vm).await.unwrap().unwrap().id;
        let mut change = store.change().await.unwrap();
        change.set_cvm_status(id, status, self.installation.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
    }

    async fn ask(&self, credentials: &Credentials, id: &str) -> (StatusCode, Option<Routes>) {
        let http = client(client_config(credentials).unwrap());
        let url = self.installation.node_url(&format!("{}/{id}", paths::ROUTES));
        let answer = http.get(url).send().await.unwrap();
        (answer.status(), answer.json().await.ok())
    }

    /// Name of the node, endpoint and readiness of each replica.
    async fn routes(&self, id: &str) -> Vec<(String, String, bool)> {
        let (status, routes) = self.ask(&self.alpha.1, id).await;
        assert_eq!(status, StatusCode::OK);
        routes.unwrap().vms.into_iter().map(|vm| (vm.node, vm.endpoint, vm.ready)).collect()
    }
}

fn app() -> String {
    AppId::from_bytes([APP; 20]).to_string()
}

fn ready(vm_uuid: Uuid) -> VmReport {
    let started_at = Some(Timestamp::from_second(1_790_000_000).unwrap());
    VmReport { health: Some(VmHealth::Healthy), started_at, ..vm(vm_uuid, VmState::Running, Some("done")) }
}

fn at(node: &str, endpoint: &str, ready: bool) -> (String, String, bool) {
    (node.to_owned(), endpoint.to_owned(), ready)
}

#[tokio::test]
async fn every_replica_is_named_with_its_node_and_what_its_report_says() {
    let nodes = two_nodes().await;
    let (first, second) = (nodes.replica(nodes.alpha.0, 1).await, nodes.replica(nodes.beta.0, 2).await);
    assert_eq!(nodes.routes(&app()).await, [], "no node has said where it is");
    let installation = &nodes.installation;
    installation.report(&nodes.alpha.1, &report("a:1", vec![ready(first)])).await;
    for (said, is_ready) in [
        (ready(second), true),
        (VmReport { draining: true, ..ready(second) }, false),
        (VmReport { health: Some(VmHealth::Unhealthy), ..ready(second) }, false),
        (VmReport { health: None, ..ready(second) }, true),
        (VmReport { state: VmState::Stopping, ..ready(second) }, false),
    ] {
        installation.report(&nodes.beta.1, &report("b:1", vec![said.clone()])).await;
        let expected = [at("alpha", "a:1", true), at("beta", "b:1", is_ready)];
        assert_eq!(nodes.routes(&app()).await, expected, "{said:?}");
    }
    // Its node falls silent.
    installation.report(&nodes.beta.1, &report("b:1", vec![ready(second)])).await;
    installation.clock.advance_ms(19_000);
    assert!(nodes.routes(&app()).await.iter().all(|route| route.2));
    installation.clock.advance_ms(1_000);
    assert!(nodes.routes(&app()).await.iter().all(|route| !route.2));
}

#[tokio::test]
async fn what_is_off_by_somebodys_wish_is_not_named_and_what_is_being_changed_is() {
    let nodes = two_nodes().await;
    let first = nodes.replica(nodes.alpha.0, 1).await;
    nodes.installation.report(&nodes.alpha.1, &report("a:1", vec![ready(first)])).await;
    for (status, named) in [
        (CvmStatus::Updating, true),
        (CvmStatus::Restarting, true),
        (CvmStatus::Error, true),
        (CvmStatus::Stopped, false),
        (CvmStatus::Removing, false),
    ] {
        nodes.set_status(first, status).await;
        assert_eq!(nodes.routes(&app()).await.len(), usize::from(named), "{status}");
    }
}

#[tokio::test]
async fn a_report_that_another_process_took_counts_as_far_as_the_store_keeps_it() {
    let nodes = two_nodes().await;
    let first = nodes.replica(nodes.alpha.0, 1).await;
    nodes.installation.report(&nodes.alpha.1, &report("a:1", vec![ready(first)])).await;
    nodes.installation.clock.advance_ms(5_000);
    let text = serde_json::to_string(&report("a:2", vec![])).unwrap();
    let mut change = nodes.installation.store().change().await.unwrap();
    change.put_node_report(nodes.alpha.0, &text, nodes.installation.clock.now_ms()).await.unwrap();
    change.commit().await.unwrap();
    assert_eq!(nodes.routes(&app()).await, [at("alpha", "a:2", true)]);
    nodes.set_status(first, CvmStatus::Updating).await;
    assert_eq!(nodes.routes(&app()).await, [at("alpha", "a:2", false)]);
}

#[tokio::test]
async fn an_instance_is_who_claimed_it_first_and_never_has_the_name_of_an_app() {
    let nodes = two_nodes().await;
    let (first, second) = (nodes.replica(nodes.alpha.0, 1).await, nodes.replica(nodes.beta.0, 2).await);
    let instance = "ab".repeat(20);
    let claims = |vm| VmReport { instance_id: Some(instance.parse().unwrap()), ..ready(vm) };
    nodes.installation.report(&nodes.alpha.1, &report("a:1", vec![claims(first)])).await;
    assert_eq!(nodes.routes(&instance).await, [at("alpha", "a:1", true)]);
    nodes.installation.report(&nodes.beta.1, &report("b:1", vec![claims(second)])).await;
    assert_eq!(nodes.routes(&instance).await, [at("alpha", "a:1", true)]);

    let named_like_the_app = VmReport { instance_id: Some(app().parse().unwrap()), ..ready(first) };
    nodes.installation.report(&nodes.alpha.1, &report("a:1", vec![named_like_the_app])).await;
    nodes.set_status(first, CvmStatus::Stopped).await;
    assert_eq!(nodes.routes(&app()).await, [at("beta", "b:1", true)]);
}

#[tokio::test]
async fn only_enrolled_nodes_ask_and_only_for_identifiers() {
    let nodes = two_nodes().await;
    assert_eq!(nodes.routes(&"cc".repeat(20)).await, []);
    for id in ["x", &"zz".repeat(20), &"aa".repeat(21), "%00"] {
        assert_eq!(nodes.ask(&nodes.alpha.1, id).await.0, StatusCode::BAD_REQUEST, "{id}");
    }
    let plane = &nodes.installation.control_plane.app;
    for identity in [
        cloister_fleet_tls::Identity::ControlPlane,
        cloister_fleet_tls::Identity::Node("never-enrolled".to_owned()),
    ] {
        let names = ["localhost".to_owned()];
        let credentials = plane.authority.issue(&identity, &names, plane.clock.now()).unwrap();
        assert_eq!(nodes.ask(&credentials, &app()).await.0, StatusCode::FORBIDDEN, "{identity}");
    }
}
