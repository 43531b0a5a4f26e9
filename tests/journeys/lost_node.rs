//! A rollout over replicas on two machines, one of which loses its power in the middle of its change.

use cloister_tests::PATIENCE;
use cloister_tests::api::{Api, script_app};
use cloister_tests::data_dir::DataDir;
use cloister_tests::eventually;
use cloister_tests::fleet::Fleet;
use cloister_tests::vms::processes_of;
use reqwest::Method;
use serde_json::{Value, json};

/// The rollouts of an application.
struct Rollouts<'a> {
    api: &'a Api,
    path: String,
}

impl Rollouts<'_> {
    /// Begins one that changes the CVMs in this order.
    async fn begin(&self, cvms: &[&str], script: &str) {
        let change = json!({ "vm_uuids": cvms, "pre_launch_script": script, "allow_force_stop": true });
        self.api.post(&self.path, change).await;
    }

    async fn latest(&self) -> Value {
        self.api.get(&self.path).await["rollouts"][0].clone()
    }

    /// Tells the latest one something; the state that it has then.
    async fn tell(&self, word: &str) -> Value {
        let id = self.latest().await["rollout_id"].as_str().unwrap().to_owned();
        self.api.post(&format!("{}/{id}/{word}", self.path), json!({})).await["state"].clone()
    }

    /// Waits for a state of the latest one: states of its members, and its reason.
    async fn reaches(&self, state: &str) -> (Vec<String>, String) {
        let rollout = eventually(&format!("the rollout is {state}"), PATIENCE, async || {
            let rollout = self.latest().await;
            (rollout["state"] == state).then_some(rollout)
        })
        .await;
        let members = rollout["members"].as_array().unwrap().iter();
        let states = members.map(|member| member["state"].as_str().unwrap().to_owned()).collect();
        (states, rollout["reason"].as_str().unwrap_or_default().to_owned())
    }
}

async fn is_running(api: &Api, cvm: &str) {
    api.runs(cvm, PATIENCE).await;
    assert_eq!(processes_of(cvm).len(), 1);
}

async fn compose_hash(api: &Api, cvm: &str) -> Value {
    api.get(&format!("/cvms/{cvm}")).await["compose_hash"].clone()
}

/// Events of the last operation of a CVM.
async fn events(api: &Api, cvm: &str) -> Vec<String> {
    let operation = api.operations(cvm).await.pop().unwrap();
    let events = operation["events"].as_array().unwrap().iter();
    events.map(|event| event["event_type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_waits_for_a_node_that_is_lost_and_goes_on_when_it_is_back() {
    let dir = DataDir::new();
    let fleet = Fleet::start(dir.path()).await;
    let api = fleet.api();
    let _alpha = fleet.join("alpha").await;
    let source = api.create("shop-web", script_app("shop-web")).await;
    let near = source["vm_uuid"].as_str().unwrap();
    let mut beta = fleet.join("beta").await;
    is_running(api, near).await;
    let replica = api.post(&format!("/cvms/{near}/replicas"), json!({ "node_id": beta.id })).await;
    let far = replica["vm_uuid"].as_str().unwrap();
    is_running(api, far).await;
    let first = compose_hash(api, near).await;
    let app_id = source["app_id"].as_str().unwrap();
    let rollouts = Rollouts { api, path: format!("/apps/{app_id}/rollouts") };

    // Its machine is lost while the replica boots with the change.
    rollouts.begin(&[far, near], "echo second\n").await;
    eventually("the replica was started with the change", PATIENCE, async || {
        events(api, far).await.last()?.ends_with("compose_update.start_vm").then_some(())
    })
    .await;
    beta.lose_power().await;
    assert_eq!(processes_of(far), Vec::<u32>::new());
    let waits = (
        vec!["updating".to_owned(), "pending".to_owned()],
        format!("node beta of {} is offline; resume when it is back", replica["name"].as_str().unwrap()),
    );
    assert_eq!(rollouts.reaches("paused").await, waits);
    // The other one serves as before, and nobody can talk the rollout into going on.
    is_running(api, near).await;
    assert_eq!(compose_hash(api, near).await, first);
    assert_eq!(rollouts.tell("resume").await, "running");
    assert_eq!(rollouts.reaches("paused").await, waits);

    // The machine is back: the node boots what it should run, the change ends, and a person says so.
    beta.start().await;
    is_running(api, far).await;
    rollouts.tell("resume").await;
    let (states, _) = rollouts.reaches("completed").await;
    assert_eq!(states, ["updated", "updated"]);
    let second = compose_hash(api, near).await;
    assert_ne!(second, first);
    for cvm in [near, far] {
        is_running(api, cvm).await;
        assert_eq!(compose_hash(api, cvm).await, second);
        let events = events(api, cvm).await;
        assert!(events.last().unwrap().ends_with(".complete"), "{events:?}");
        let mut once = events.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), events.len(), "{events:?}");
    }

    // Lost for good: no change is begun there, and whoever gives up leaves everything as it is.
    beta.lose_power().await;
    beta.is("OFFLINE").await;
    rollouts.begin(&[far, near], "echo third\n").await;
    let (states, reason) = rollouts.reaches("paused").await;
    assert_eq!(states, ["pending", "pending"]);
    assert!(reason.contains("node beta is offline"), "{reason}");
    rollouts.tell("abort").await;
    rollouts.reaches("aborted").await;
    is_running(api, near).await;
    assert_eq!(compose_hash(api, near).await, second);
    assert_eq!(compose_hash(api, far).await, second);
    let answer = api.call(Method::GET, &format!("/cvms/{far}/state"), None).await;
    assert_eq!(answer.body["status"], "running", "nobody wants it otherwise: {answer:?}");
}
