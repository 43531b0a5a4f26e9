//! `kill -9` at every boundary of every step, and at every moment of a rollout, with real virtual machines: the
//! end state is as if nobody had died, there is never a second VM, and no event is lost or doubled.
//!
//! One operation goes through all of its deaths: the process dies at a place, the next one goes on and dies at
//! the place behind it. So each place is left behind once by a process that knows nothing but what was written,
//! and the VM boots once for all of them.

use cloister_control_plane::operations::{Boundary, OperationKind, Step};
use cloister_tests::PATIENCE;
use cloister_tests::api::{Api, creation, script_app};
use cloister_tests::cloud::MortalCloud;
use cloister_tests::data_dir::DataDir;
use cloister_tests::eventually;
use cloister_tests::vms::processes_of;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Starts, and fails when it has been well for a moment, if the script before it wants that.
const MAIN_SCRIPT: &str =
    "sleep 4\n[ ! -e /run/is-to-fail ] || exit 3\necho the script runs\nwhile true; do sleep 3600; done\n";

/// Every place where the process can die in steps of an operation, as `mortal-cloud` takes it.
fn places(kind: OperationKind, steps: &[Step]) -> Vec<String> {
    let boundaries = [Boundary::Before, Boundary::CarriedOut, Boundary::Recorded];
    steps.iter().flat_map(|step| boundaries.map(|boundary| format!("{kind}/{step}/{boundary:?}"))).collect()
}

/// The events of an operation, without its kind: that of one which ended well, or failed at a step.
fn events(kind: OperationKind, failed: Option<Step>) -> Vec<String> {
    let rules = kind.rules();
    let names = |steps: &[Step]| steps.iter().map(ToString::to_string).collect::<Vec<_>>();
    let begin = vec!["start".to_owned()];
    match failed {
        None => [begin, names(rules.steps), vec!["complete".to_owned()]].concat(),
        Some(step) => {
            let at = rules.steps.iter().position(|other| *other == step).unwrap();
            let before = names(&rules.steps[..at]);
            let end = vec!["failed".to_owned()];
            [begin, before, vec![format!("{step}.failed")], names(rules.undo), end].concat()
        }
    }
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
        eventually("the node is online", PATIENCE, async || {
            let nodes = api.get("/attestations/nodes").await;
            (nodes[0]["status"] == "ONLINE").then_some(())
        })
        .await;
        (cloud, api)
    }

    /// Begins an operation with `call`, and dies at every one of the places in turn. At no death there are more
    /// VMs than `vms`. Then a cloud that lives.
    async fn through(&self, deaths: &[String], vms: usize, call: Call) -> (MortalCloud, Api) {
        let (first, others) = deaths.split_first().unwrap();
        let (cloud, api) = self.start(Some(first)).await;
        // It may die before it has answered. What it has begun to work on was written before.
        if let Some(answer) = api.attempt(call.method, &call.path, call.body).await {
            assert!(answer.status.is_success(), "{}: {answer:?}", call.path);
        }
        cloud.died(PATIENCE).await;
        for death in others {
            MortalCloud::live_until(self.data_dir.path(), death, PATIENCE).await;
            let running = processes_of(&self.data_dir.path().display().to_string());
            assert!(running.len() <= vms, "{death}: {running:?}");
        }
        self.start(None).await
    }
}

/// A request that begins something.
struct Call {
    method: Method,
    path: String,
    body: Option<Value>,
}

impl Call {
    fn post(path: String, body: Value) -> Self {
        Self { method: Method::POST, path, body: Some(body) }
    }
}

/// A CVM that is expected to be up, over all that happens to it.
struct Cvm {
    uuid: String,
    app_id: String,
}

impl Cvm {
    fn of(document: &Value) -> Self {
        let text = |name: &str| document[name].as_str().unwrap().to_owned();
        Self { uuid: text("vm_uuid"), app_id: text("app_id") }
    }

    async fn created(api: &Api, name: &str) -> Self {
        let mut app = script_app(name);
        app["bash_script"] = json!(MAIN_SCRIPT);
        let cvm = Self::of(&api.create(name, app).await);
        api.runs(&cvm.uuid, PATIENCE).await;
        cvm
    }

    async fn document(&self, api: &Api) -> Value {
        api.get(&format!("/cvms/{}", self.uuid)).await
    }

    fn change(&self, body: Value) -> Call {
        Call { method: Method::PATCH, path: format!("/cvms/{}", self.uuid), body: Some(body) }
    }

    /// Waits until nothing moves; the CVM is up, once, in service, and its last operation went as it should.
    async fn is_up_after(&self, cloud: &MortalCloud, api: &Api, kind: OperationKind, failed: Option<Step>) {
        api.runs(&self.uuid, PATIENCE).await;
        assert_eq!(processes_of(&self.uuid).len(), 1, "{kind}");
        eventually("no drain is left: the ingress leads to it", PATIENCE, async || {
            (cloud.ingress_status(&self.app_id).await == StatusCode::BAD_GATEWAY).then_some(())
        })
        .await;
        let operations = api.operations(&self.uuid).await;
        let last = operations.last().unwrap();
        assert_eq!(last["operation_type"], kind.as_str());
        assert_eq!(last["status"], if failed.is_some() { "failed" } else { "completed" }, "{last}");
        let seen: Vec<_> =
            last["events"].as_array().unwrap().iter().map(|event| event["event_type"].clone()).collect();
        let expected: Vec<_> =
            events(kind, failed).iter().map(|event| json!(format!("instance.{kind}.{event}"))).collect();
        assert_eq!(seen, expected);
    }

    /// States of its revisions, newest first.
    async fn revisions(&self, api: &Api) -> Vec<Value> {
        let history = api.get(&format!("/apps/{}/revisions", self.app_id)).await;
        let own = history["revisions"].as_array().unwrap().iter();
        own.filter(|revision| revision["vm_uuid"] == *self.uuid)
            .map(|revision| revision["state"].clone())
            .collect()
    }
}

/// What is free on the node: memory and virtual CPUs.
async fn free(api: &Api) -> [Value; 2] {
    let available = api.get("/teepods/available").await;
    ["remaining_memory", "remaining_vcpu"].map(|figure| available["nodes"][0][figure].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn create_restart_and_delete_survive_kill_9_at_every_boundary() {
    let world = World::new().await;
    let provision = {
        let (_cloud, api) = world.start(None).await;
        api.provision("crash", script_app("crash")).await
    };
    let kind = OperationKind::Create;
    let call = Call::post("/cvms".to_owned(), creation(&provision));
    let (cloud, api) = world.through(&places(kind, kind.rules().steps), 1, call).await;
    let cvm = Cvm::of(&api.get("/cvms/crash").await);
    cvm.is_up_after(&cloud, &api, kind, None).await;
    drop(cloud);

    let kind = OperationKind::Restart;
    let call = Call::post(format!("/cvms/{}/restart", cvm.uuid), json!({ "force": true }));
    let (cloud, api) = world.through(&places(kind, kind.rules().steps), 1, call).await;
    cvm.is_up_after(&cloud, &api, kind, None).await;
    drop(cloud);

    let kind = OperationKind::Delete;
    let call = Call { method: Method::DELETE, path: format!("/cvms/{}", cvm.uuid), body: None };
    let (_cloud, api) = world.through(&places(kind, kind.rules().steps), 1, call).await;
    api.gone(&cvm.uuid, PATIENCE).await;
    assert_eq!(processes_of(&cvm.uuid), Vec::<u32>::new());
    let left = world.data_dir.path().join("node/vms").join(&cvm.uuid);
    assert!(!left.exists(), "{} is left over", left.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_and_its_way_back_survive_kill_9_at_every_boundary() {
    let world = World::new().await;
    let (cloud, api) = world.start(None).await;
    let cvm = Cvm::created(&api, "crash-update").await;
    let before = cvm.document(&api).await;
    drop(cloud);

    let kind = OperationKind::ComposeUpdate;
    let change = json!({ "pre_launch_script": "echo another one\n", "allow_force_stop": true });
    let (cloud, api) = world.through(&places(kind, kind.rules().steps), 1, cvm.change(change)).await;
    cvm.is_up_after(&cloud, &api, kind, None).await;
    let updated = cvm.document(&api).await;
    assert_ne!(updated["compose_hash"], before["compose_hash"]);
    assert_eq!(cvm.revisions(&api).await, ["current", "superseded"]);
    let room = free(&api).await;
    drop(cloud);

    // A larger CVM whose application fails after its start; the deaths begin when that is found out.
    let kind = OperationKind::Update;
    let failed = Step::AwaitHealthy;
    let mut deaths = vec![format!("{kind}/{failed}/Before"), format!("{kind}/{failed}/Recorded")];
    deaths.extend(places(kind, kind.rules().undo));
    let change = json!({
        "pre_launch_script": ": >/run/is-to-fail\n", "memory": 640, "health_timeout": 30,
        "allow_force_stop": true,
    });
    let (cloud, api) = world.through(&deaths, 1, cvm.change(change)).await;
    cvm.is_up_after(&cloud, &api, kind, Some(failed)).await;
    let now = cvm.document(&api).await;
    assert_eq!(now["compose_hash"], updated["compose_hash"]);
    assert_eq!(cvm.revisions(&api).await, ["rolled_back", "current", "superseded"]);
    assert_eq!(free(&api).await, room, "nothing is reserved for what was taken back");
}

/// Moments of a round that begins a change, and of one that finds out what became of it before.
fn rounds(state: &str) -> [Vec<String>; 2] {
    let moments = |names: &[&str]| names.iter().map(|name| format!("rollout/{state}/{name}")).collect();
    [moments(&["Decided", "Recorded"]), moments(&["Settled", "Decided", "Recorded"])]
}

/// Changes the CVMs one after the other through deaths, and waits for the end of the rollout; what it is then.
async fn roll_out(
    world: &World,
    cvms: &[&Cvm],
    deaths: &[String],
    script: &str,
) -> (MortalCloud, Api, Value) {
    let uuids: Vec<_> = cvms.iter().map(|cvm| &cvm.uuid).collect();
    let path = format!("/apps/{}/rollouts", cvms[0].app_id);
    let body = json!({ "vm_uuids": uuids, "pre_launch_script": script, "allow_force_stop": true });
    let (cloud, api) = world.through(deaths, cvms.len(), Call::post(path.clone(), body)).await;
    let rollout = eventually("the rollout ends", PATIENCE, async || {
        let rollout = api.get(&path).await["rollouts"][0].clone();
        (!rollout["completed_at"].is_null()).then_some(rollout)
    })
    .await;
    (cloud, api, rollout)
}

fn member_states(rollout: &Value) -> Vec<&str> {
    let members = rollout["members"].as_array().unwrap().iter();
    members.map(|member| member["state"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_and_its_way_back_survive_kill_9_at_every_moment() {
    let world = World::new().await;
    let (cloud, api) = world.start(None).await;
    let first = Cvm::created(&api, "crash-rollout").await;
    let second = Cvm::of(&api.post(&format!("/cvms/{}/replicas", first.uuid), json!({})).await);
    api.runs(&second.uuid, PATIENCE).await;
    let name = second.document(&api).await["name"].as_str().unwrap().to_owned();
    let before = first.document(&api).await["compose_hash"].clone();
    drop(cloud);
    let (cvms, kind) = ([&first, &second], OperationKind::ComposeUpdate);

    // The first one takes the change and the second one does not, so both go back.
    let [begins, settles] = rounds("running");
    let [begins_back, settles_back] = rounds("rolling_back");
    let midway = |step: Step| vec![format!("{kind}/{step}/CarriedOut")];
    let deaths = [
        begins.clone(),
        midway(Step::StartVm),
        settles.clone(),
        midway(Step::AwaitPowerOff),
        settles.clone(),
        begins_back,
        midway(Step::ApplyRevision),
        settles_back,
    ];
    let script = format!("[ \"$(cat /proc/sys/kernel/hostname)\" != {name} ] || exit 7\n");
    let (cloud, api, rollout) = roll_out(&world, &cvms, &deaths.concat(), &script).await;
    assert_eq!(rollout["state"], "rolled_back", "{rollout}");
    assert_eq!(member_states(&rollout), ["restored", "failed"], "{rollout}");
    first.is_up_after(&cloud, &api, kind, None).await;
    second.is_up_after(&cloud, &api, kind, Some(Step::AwaitBoot)).await;
    for (cvm, operations) in [(&first, 3), (&second, 2)] {
        assert_eq!(cvm.document(&api).await["compose_hash"], before);
        assert_eq!(api.operations(&cvm.uuid).await.len(), operations, "nothing is done twice");
    }
    assert_eq!(first.revisions(&api).await, ["current", "superseded", "superseded"]);
    assert_eq!(second.revisions(&api).await, ["rolled_back", "current"]);

    // One that is off gets the next change at once, and the other one with a boot.
    api.post(&format!("/cvms/{}/stop", second.uuid), json!({})).await;
    assert_eq!(api.at_rest(&second.uuid, PATIENCE).await["status"], "stopped");
    drop(cloud);
    let deaths = [begins, settles.clone(), midway(Step::Drain), settles];
    let (cloud, api, rollout) = roll_out(&world, &cvms, &deaths.concat(), "echo another one\n").await;
    assert_eq!(rollout["state"], "completed", "{rollout}");
    assert_eq!(member_states(&rollout), ["updated", "updated"], "{rollout}");
    first.is_up_after(&cloud, &api, kind, None).await;
    assert_eq!(processes_of(&second.uuid), Vec::<u32>::new(), "what is off stays off");
    let after = first.document(&api).await["compose_hash"].clone();
    assert_ne!(after, before);
    assert_eq!(second.document(&api).await["compose_hash"], after);
    for cvm in cvms {
        assert_eq!(cvm.revisions(&api).await[0], "current");
    }
}
