//! Taking VMs out of service and back, and the way of other nodes to them.

use cloister_node::OnExit;
use cloister_node_api::{NodeErrorCode, VmHealth, VmReport, VmState, paths};
use futures_util::FutureExt;
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use crate::support::{World, runs};

/// Waits until the node says something of a VM.
async fn until(world: &World, vm: Uuid, wanted: impl Fn(&VmReport) -> bool) -> VmReport {
    loop {
        let report = world.get(vm).await.unwrap();
        if wanted(&report) {
            return report;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_with_the_last_stream_and_lets_none_begin() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let tunnel = world.tunnel(vm, "80").await;
    assert_eq!(tunnel.status(), 101);
    let tunnel = tunnel.upgrade().await.unwrap();
    let own = world.node.as_ref().unwrap().backends().begin(vm).unwrap();

    assert!(world.drain(vm, 0).await.unwrap().draining, "time is over at once");
    assert_eq!(world.tunnel(vm, "80").await.status(), 409);
    assert!(world.node.as_ref().unwrap().backends().begin(vm).is_none());
    let mut drain = Box::pin(world.drain(vm, 300));
    drop(own);
    until(&world, vm, |vm| vm.draining).await;
    assert!((&mut drain).now_or_never().is_none(), "the tunnel is open");
    drop(tunnel);
    let report = drain.await.unwrap();
    assert_eq!((report.draining, report.state), (true, VmState::Running));

    assert!(!world.power(vm, "start").await.unwrap().draining);
    assert_eq!(world.tunnel(vm, "80").await.status(), 101);
    world.drain(vm, 0).await.unwrap();
    assert!(!world.end_drain(vm).await.unwrap().draining);
    assert_eq!(world.tunnel(vm, "80").await.status(), 101);
    let (status, error) = world.drain(vm, 301).await.unwrap_err();
    assert_eq!((status, error.code), (400, NodeErrorCode::Invalid));
    assert_eq!(world.drain(Uuid::nil(), 1).await.unwrap_err().0, 404);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_outlives_the_node_and_not_the_vm() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    world.drain(vm, 0).await.unwrap();
    world.stop(OnExit::LeaveRunning).await;
    world.start().await;
    assert!(world.get(vm).await.unwrap().draining);
    assert!(!world.power(vm, "stop").await.unwrap().draining);
    assert!(!world.drain(vm, 300).await.unwrap().draining, "nothing flows through what is off");
    assert_eq!(world.end_drain(vm).await.unwrap().state, VmState::Stopped, "and nothing starts it");
    assert!(!world.power(vm, "start").await.unwrap().draining);
    world.reported(vm, |vm| vm.state == VmState::Running && !vm.draining).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_without_force_leaves_a_deaf_guest_running() {
    let mut world = World::new().await;
    let vm = world.running(1, "deaf").await;
    let shutdown = async |world: &World, timeout_s: u32, force: bool| {
        let body = serde_json::json!({ "timeout_s": timeout_s, "force": force });
        let path = format!("{}/{vm}/shutdown", paths::VMS);
        world.call::<VmReport>(Method::POST, &path, Some(body)).await.unwrap()
    };
    world.drain(vm, 0).await.unwrap();
    for _ in 0..2 {
        shutdown(&world, 0, false).await;
        let report = until(&world, vm, |vm| vm.state == VmState::Running).await;
        assert!(!report.draining && runs(world.pid(vm).unwrap()), "it serves again");
    }
    // That nothing is killed is kept over a restart of the node, too.
    assert_eq!(shutdown(&world, 600, false).await.state, VmState::Stopping);
    world.stop(OnExit::LeaveRunning).await;
    let path = world.vm_dir(vm).join("power.json");
    let mut power: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    power["stop_by"] = power["started_at"].clone();
    std::fs::write(&path, power.to_string()).unwrap();
    world.start().await;
    until(&world, vm, |vm| vm.state == VmState::Running).await;
    shutdown(&world, 0, true).await;
    world.reported_state(vm, VmState::Stopped).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_reported_and_ends_with_the_power() {
    let mut world = World::new().await;
    let vm = world.running(1, "sick").await;
    let report = world.reported(vm, |vm| vm.health.is_some()).await;
    assert_eq!(report.health, Some(VmHealth::Unhealthy));
    assert_eq!(report.health_detail.as_deref(), Some("web: exited with 1"));
    assert!(world.node.as_ref().unwrap().backends().begin(vm).is_none());
    assert_eq!(world.tunnel(vm, "80").await.status(), 409);
    let report = world.power(vm, "stop").await.unwrap();
    assert_eq!((report.health, report.health_detail), (None, None));
    assert_eq!(report.boot_progress.as_deref(), Some("done"), "how far it came stays");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_nodes_reach_ports_of_guests() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let mut tunnel = world.tunnel(vm, "8080").await.upgrade().await.unwrap();
    tunnel.write_all(b"GET /through HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tunnel.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("/through"), "{answer}");
    for (port, status) in [("0", 400), ("65536", 400), ("x", 400), ("6", 502)] {
        assert_eq!(world.tunnel(vm, port).await.status(), status, "{port}");
    }
    assert_eq!(world.tunnel(Uuid::nil(), "80").await.status(), 409);
    let path = format!("{}/{vm}/ports/80", paths::VMS);
    assert_eq!(world.raw(Method::GET, &path, None).await.0, 400, "no upgrade");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_are_passed_on_clean() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let path = format!("{}/{vm}/stats", paths::VMS);
    let stats: serde_json::Value = world.call(Method::GET, &path, None).await.unwrap();
    assert_eq!((stats["uptime"].as_u64(), stats["disks"][0]["free_size"].as_u64()), (Some(8), Some(1)));
    assert_eq!(stats["os_name"], "Debian [31m");
    assert!(stats["cpu_model"].as_str().unwrap().len() < 10_000 && stats.get("secret").is_none());
    world.power(vm, "stop").await.unwrap();
    assert_eq!(world.raw(Method::GET, &path, None).await.0, 502);
    world.end().await;
}
