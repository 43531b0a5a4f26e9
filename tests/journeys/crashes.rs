//! `kill -9` at every boundary of every step of create, restart and delete, with a real virtual machine:
//! the end state is the same, there is never a second VM, and no event is lost or doubled.

use std::time::Duration;

use cloister_control_plane::operations::{Boundary, OperationKind};
use cloister_tests::api::{Api, creation, script_app};
use cloister_tests::cloud::MortalCloud;
use cloister_tests::data_dir::DataDir;
use cloister_tests::vms::processes_of;
use reqwest::Method;
use serde_json::{Value, json};

const BOOT_PATIENCE: Duration = Duration::from_mins(3);

/// Every place where the process can die during an operation, as `mortal-cloud` takes it.
fn places(kind: OperationKind) -> Vec<String> {
    let boundaries = [Boundary::Before, Boundary::CarriedOut, Boundary::Recorded];
    let steps = kind.rules().steps.iter();
    steps.flat_map(|step| boundaries.map(|boundary| format!("{kind}/{step}/{boundary:?}"))).collect()
}

/// A data directory and the key of the cloud that lives in it.
struct World {
    data_dir: DataDir,
    key: String,
}

impl World {
    async fn new() -> Self {
        let data_dir = DataDir::new();
        let cloud = MortalCloud::start(data_dir.path(), None).await;
        let key = cloud.key.clone().unwrap();
        Self { data_dir, key }
    }

    async fn start(&self, death: Option<&str>) -> (MortalCloud, Api) {
        let cloud = MortalCloud::start(self.data_dir.path(), death).await;
        let api = cloud.api(&self.key);
        wait_for_node(&api).await;
        (cloud, api)
    }
}

async fn wait_for_node(api: &Api) {
    cloister_tests::eventually("the node is online", Duration::from_secs(30), async || {
        let nodes = api.get("/attestations/nodes").await;
        (nodes[0]["status"] == "ONLINE").then_some(())
    })
    .await;
}

/// A call that begins the operation in which the cloud dies, perhaps before it has answered. The operation
/// is begun all the same: only what was written is worked on.
async fn call_of_the_dying(api: &Api, method: Method, path: &str, body: Option<Value>) {
    if let Some(answer) = api.attempt(method, path, body).await {
        assert!(answer.status.is_success(), "{path}: {answer:?}");
    }
}

fn uuid_of(cvm: &Value) -> String {
    cvm["vm_uuid"].as_str().unwrap().to_owned()
}

/// The last operation of a CVM ended well and has each event once, in order.
async fn assert_complete(api: &Api, uuid: &str, kind: OperationKind, place: &str) {
    let operations = api.operations(uuid).await;
    let last = operations.last().unwrap();
    assert_eq!(last["status"], "completed", "{place}: {last}");
    let events: Vec<_> = last["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event_type"].as_str().unwrap().to_owned())
        .collect();
    let middle = kind.rules().steps.iter().map(|step| step.as_str());
    let expected: Vec<_> = std::iter::once("start")
        .chain(middle)
        .chain(["complete"])
        .map(|event| format!("instance.{kind}.{event}"))
        .collect();
    assert_eq!(events, expected, "{place}");
}

#[tokio::test(flavor = "multi_thread")]
async fn create_and_delete_survive_kill_9_at_every_boundary() {
    let world = World::new().await;
    let deaths = places(OperationKind::Create);
    // One deletion follows each creation; the few places of deletion are gone through in turn.
    let deletions = places(OperationKind::Delete);
    for (round, (create_death, delete_death)) in deaths.iter().zip(deletions.iter().cycle()).enumerate() {
        let (cloud, api) = world.start(Some(create_death)).await;
        let name = format!("crash-{round}");
        let provision = api.provision(&name, script_app(&name)).await;
        call_of_the_dying(&api, Method::POST, "/cvms", Some(creation(&provision))).await;
        cloud.died(BOOT_PATIENCE).await;

        let (cloud, api) = world.start(Some(delete_death)).await;
        let uuid = uuid_of(&api.get(&format!("/cvms/{name}")).await);
        let state = api.at_rest(&uuid, BOOT_PATIENCE).await;
        assert_eq!(state["status"], "running", "{create_death}: {state}");
        assert_eq!(processes_of(&uuid).len(), 1, "{create_death}");
        assert_complete(&api, &uuid, OperationKind::Create, create_death).await;

        call_of_the_dying(&api, Method::DELETE, &format!("/cvms/{uuid}"), None).await;
        cloud.died(BOOT_PATIENCE).await;

        let (_cloud, api) = world.start(None).await;
        api.gone(&uuid, BOOT_PATIENCE).await;
        assert_eq!(processes_of(&uuid), Vec::<u32>::new(), "{delete_death}");
        let left = world.data_dir.path().join("node/vms").join(&uuid);
        assert!(!left.exists(), "{delete_death}: {} is left over", left.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_survives_kill_9_at_every_boundary() {
    let world = World::new().await;
    let (cloud, api) = world.start(None).await;
    let uuid = uuid_of(&api.create("crash-restart", script_app("crash-restart")).await);
    assert_eq!(api.at_rest(&uuid, BOOT_PATIENCE).await["status"], "running");
    drop(cloud);

    for death in places(OperationKind::Restart) {
        let (cloud, api) = world.start(Some(&death)).await;
        let body = Some(json!({ "force": true }));
        call_of_the_dying(&api, Method::POST, &format!("/cvms/{uuid}/restart"), body).await;
        cloud.died(BOOT_PATIENCE).await;
        let (_cloud, api) = world.start(None).await;
        let state = api.at_rest(&uuid, BOOT_PATIENCE).await;
        assert_eq!(state["status"], "running", "{death}: {state}");
        assert_eq!(processes_of(&uuid).len(), 1, "{death}");
        assert_complete(&api, &uuid, OperationKind::Restart, &death).await;
    }

    let (_cloud, api) = world.start(None).await;
    api.call(Method::DELETE, &format!("/cvms/{uuid}"), None).await;
    api.gone(&uuid, BOOT_PATIENCE).await;
    assert_eq!(processes_of(&uuid), Vec::<u32>::new());
}
