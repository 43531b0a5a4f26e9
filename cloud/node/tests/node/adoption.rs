use std::time::Duration;

use cloister_node::{Node, OnExit, StartError};
use cloister_node_api::{ExitReason, VmState, paths};
use reqwest::Method;

use crate::support::{World, runs};

#[tokio::test(flavor = "multi_thread")]
async fn vms_outlive_the_node_and_are_adopted() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let backends = world.node.as_ref().unwrap().backends();
    backends.connect(vm, 80).await.unwrap();
    let (pid, before) = (world.pid(vm), world.get(vm).await.unwrap());
    drop(backends);
    world.stop(OnExit::LeaveRunning).await;
    world.start().await;
    let after = world.reported(vm, |vm| vm.boot_progress.is_some()).await;
    assert_eq!((world.pid(vm), &after), (pid, &before));
    world.node.as_ref().unwrap().backends().connect(vm, 80).await.unwrap();
    assert_eq!(world.power(vm, "stop").await.unwrap().state, VmState::Stopped);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_should_run_runs_again_and_what_should_not_does_not() {
    let mut world = World::new().await;
    let (up, down) = (world.running(1, "").await, world.running(2, "").await);
    world.power(down, "stop").await.unwrap();
    let pid = world.pid(up);
    world.stop(OnExit::Shutdown(Duration::from_secs(20))).await;
    world.start().await;
    assert_eq!(world.get(up).await.unwrap().state, VmState::Running);
    assert_ne!(world.pid(up), pid);
    assert_eq!(world.get(down).await.unwrap().state, VmState::Stopped);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_again_is_off_and_says_why() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    world.stop(OnExit::Shutdown(Duration::from_secs(20))).await;
    std::fs::remove_dir_all(world.dir.path().join("images/plain")).unwrap();
    world.start().await;
    let report = world.get(vm).await.unwrap();
    assert_eq!((report.state, report.exit_reason), (VmState::Exited, Some(ExitReason::NotStartedAgain)));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_started_and_not_noted_is_found() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let pid = world.pid(vm);
    world.stop(OnExit::LeaveRunning).await;
    // As if the node had died between the start and its note.
    std::fs::remove_file(world.vm_dir(vm).join("power.json")).unwrap();
    world.start().await;
    assert_eq!(world.get(vm).await.unwrap().state, VmState::Running);
    assert_eq!(world.power(vm, "start").await.unwrap().state, VmState::Running);
    assert_eq!(world.pid(vm), pid, "no second process");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_shutdown_is_finished() {
    let mut world = World::new().await;
    let vm = world.running(1, "deaf").await;
    world.power(vm, "shutdown").await.unwrap();
    world.stop(OnExit::LeaveRunning).await;
    let path = world.vm_dir(vm).join("power.json");
    let mut power: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(power["state"], "stopping");
    power["stop_by"] = power["started_at"].clone();
    std::fs::write(&path, power.to_string()).unwrap();
    world.start().await;
    world.reported_state(vm, VmState::Stopped).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_a_crash_do_no_harm() {
    let mut world = World::prepared().await;
    let vms = world.dir.path().join("node/vms");
    let (removed, torn) = (vms.join(".removed-x"), world.vm_dir(uuid::Uuid::from_u128(5)));
    for dir in [&removed, &torn] {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("data.img"), "x").unwrap();
    }
    world.start().await;
    assert!(!removed.exists() && !torn.exists());
    world.report(|report| report.vms.is_empty()).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_serves_one_node() {
    let world = World::new().await;
    assert!(matches!(Node::start(world.config.clone()).await, Err(StartError::InUse(_))));
    world.end().await;
}

/// A process that is just being started has every open file of this one until it runs its program.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_node_holds_nothing_through_processes_that_are_being_started() {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    let mut world = World::new().await;
    let data_dir = world.dir.path().join("node").canonicalize().unwrap();
    let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    // All of them before the first is doubled: a table of files that grows meanwhile lists the doubles, too.
    let locks: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter(|entry| {
            std::fs::read_link(entry.path())
                .is_ok_and(|file| file.starts_with(&data_dir) && file.ends_with("lock"))
        })
        .map(|entry| entry.file_name().to_str().unwrap().parse().unwrap())
        .collect();
    let inherited: Vec<_> =
        locks.iter().map(|fd| pidfd_getfd(&this, *fd, PidfdGetfdFlags::empty()).unwrap()).collect();
    assert_eq!(inherited.len(), 2, "the node's and the image store's: {inherited:?}");
    world.stop(OnExit::LeaveRunning).await;
    world.start().await;
    drop(inherited);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_whose_order_is_damaged_keeps_its_data_until_it_is_removed() {
    let mut world = World::new().await;
    let mut spec = world.spec(1, "");
    spec.disk_gb = 2;
    world.prepare(&spec).await.unwrap();
    world.power(spec.vm_uuid, "start").await.unwrap();
    let (dir, pid) = (world.vm_dir(spec.vm_uuid), world.pid(spec.vm_uuid).unwrap());
    world.stop(OnExit::LeaveRunning).await;
    std::fs::write(dir.join("spec.json"), "{").unwrap();
    world.start().await;
    spec.disk_gb = 1;
    world.prepare(&spec).await.unwrap_err();
    assert!(dir.join("data.img").exists(), "an order that cannot be met removes nothing");
    let (status, _) = world.raw(Method::DELETE, &format!("{}/{}", paths::VMS, spec.vm_uuid), None).await;
    assert_eq!((status, dir.exists(), runs(pid)), (204, false, false));
    world.end().await;
}
