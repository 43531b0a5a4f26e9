use cloister_guest_channel::config_disk::ConfigDisk;
use cloister_node::{Backend, Readiness};
use cloister_node_api::{ExitReason, NodeErrorCode, Platform, VmState, paths};
use futures_util::future::join_all;
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_from_order_to_removal() {
    let mut world = World::new().await;
    let mut spec = world.spec(1, "");
    let vm = spec.vm_uuid;
    assert_eq!(world.prepare(&spec).await.unwrap().state, VmState::Stopped);
    assert_eq!(world.pid(vm), None, "an order boots nothing");
    assert_eq!(std::fs::metadata(world.vm_dir(vm).join("data.img")).unwrap().len(), 1 << 30);

    let report = world.power(vm, "start").await.unwrap();
    assert_eq!(report.state, VmState::Running);
    assert!(report.started_at.is_some());
    let report = world.reported(vm, |vm| vm.boot_progress.as_deref() == Some("done")).await;
    assert_eq!(report.instance_id.unwrap().to_string(), "ab".repeat(20));
    let config = ConfigDisk::read(std::fs::File::open(world.vm_dir(vm).join("config.img")).unwrap()).unwrap();
    assert_eq!(
        (config.sys_config.hostname.as_str(), config.encrypted_env),
        ("hello", Some(vec![0x00, 0xff]))
    );
    assert_eq!(config.sys_config.kms_urls, ["https://10.0.2.2:12001"]);

    let (status, text) = world.raw(Method::GET, &format!("{}/{vm}/serial?tail=2", paths::VMS), None).await;
    assert_eq!((status, text.as_str()), (200, "line 3\nline 4\n"));

    assert_eq!(world.power(vm, "shutdown").await.unwrap().state, VmState::Stopping);
    assert!(world.reported_state(vm, VmState::Stopped).await.exited_at.is_some());

    spec.disk_gb = 2;
    world.prepare(&spec).await.unwrap();
    assert_eq!(std::fs::metadata(world.vm_dir(vm).join("data.img")).unwrap().len(), 2 << 30);
    world.power(vm, "start").await.unwrap();
    for _ in 0..2 {
        let (status, _) = world.raw(Method::DELETE, &format!("{}/{vm}", paths::VMS), None).await;
        assert_eq!(status, 204);
    }
    assert!(!world.vm_dir(vm).exists());
    assert_eq!(world.get(vm).await.unwrap_err().1.code, NodeErrorCode::UnknownVm);
    world.report(|report| report.vms.is_empty()).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_starts_at_once_make_one_process() {
    let world = World::new().await;
    let spec = world.spec(1, "");
    world.prepare(&spec).await.unwrap();
    let answers = join_all((0..8).map(|_| world.power(spec.vm_uuid, "start"))).await;
    let started = answers.into_iter().map(|answer| answer.unwrap().started_at).collect::<Vec<_>>();
    assert!(started.iter().all(|at| at == &started[0] && at.is_some()), "{started:?}");
    assert_eq!(world.processes(), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_among_starts_leaves_nothing() {
    let world = World::new().await;
    let spec = world.spec(1, "");
    let path = format!("{}/{}", paths::VMS, spec.vm_uuid);
    for _ in 0..4 {
        world.prepare(&spec).await.unwrap();
        let starts = join_all((0..4).map(|_| world.power(spec.vm_uuid, "start")));
        let (starts, (status, _)) = tokio::join!(starts, world.raw(Method::DELETE, &path, None));
        assert_eq!(status, 204);
        let refusals = starts.into_iter().filter_map(Result::err).map(|(_, error)| error.code);
        assert!(refusals.into_iter().all(|code| code == NodeErrorCode::UnknownVm));
        assert!(!world.vm_dir(spec.vm_uuid).exists());
        assert_eq!(world.processes(), 0);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_takes_the_power_from_a_guest_that_ignores_everything() {
    let mut world = World::new().await;
    let vm = world.running(1, "stuck").await;
    assert_eq!(world.power(vm, "shutdown").await.unwrap().state, VmState::Stopping);
    let (status, error) = world.power(vm, "start").await.unwrap_err();
    assert_eq!((status, error.code), (409, NodeErrorCode::Conflict));
    assert_eq!(world.power(vm, "stop").await.unwrap().state, VmState::Stopped);
    assert_eq!(world.power(vm, "start").await.unwrap().state, VmState::Running);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_at_its_deadline() {
    let mut world = World::new().await;
    let vm = world.running(1, "deaf").await;
    let body = serde_json::json!({ "timeout_s": 0 });
    let path = format!("{}/{vm}/shutdown", paths::VMS);
    let report = world.call::<cloister_node_api::VmReport>(Method::POST, &path, Some(body)).await.unwrap();
    assert_eq!(report.state, VmState::Stopping);
    world.reported_state(vm, VmState::Stopped).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_nobody_asked_for_is_reported() {
    let mut world = World::new().await;
    for (number, mode, reason) in [(1, "crash", ExitReason::Silent), (2, "panic", ExitReason::Restarted)] {
        let spec = world.spec(number, mode);
        world.prepare(&spec).await.unwrap();
        world.power(spec.vm_uuid, "start").await.unwrap();
        let report = world.reported_state(spec.vm_uuid, VmState::Exited).await;
        assert!(report.exited_at.is_some());
        assert_eq!(report.exit_reason, Some(reason));
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_and_questions_reach_the_guest() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let backends = world.node.as_ref().unwrap().backends();
    let ready = Backend { vm, readiness: Readiness::Ready, is_claim: false };
    assert_eq!(backends.resolve(&"aa".repeat(20)), [ready]);
    let claim = Backend { is_claim: true, ..ready };
    assert_eq!(backends.resolve(&"ab".repeat(20)), [claim], "by instance");
    assert_eq!(backends.resolve(&"cc".repeat(20)), []);
    // More ports than are kept open: the oldest make room.
    for port in (1000..1080).chain([1000]) {
        let mut stream = backends.connect(vm, port).await.unwrap();
        stream.write_all(b"GET /hello HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("/hello"), "{answer}");
    }
    assert!(backends.connect(vm, 6).await.is_err(), "the host has no port left");

    let path = |rest: &str| format!("{}/{vm}/{rest}", paths::VMS);
    let answer: serde_json::Value = world.call(Method::GET, &path("containers"), None).await.unwrap();
    assert_eq!(answer["path"], "/containers");
    assert_eq!(answer["token"].as_str().unwrap().len(), 64);
    let (_, text) = world.raw(Method::GET, &path("logs/a%20b?tail=3&follow"), None).await;
    assert!(text.contains("/logs/a%20b?tail=3&follow"), "{text}");
    let (status, error) =
        world.call::<serde_json::Value>(Method::GET, &path("logs/absent"), None).await.unwrap_err();
    assert_eq!((status, error.code), (404, NodeErrorCode::UnknownContainer));

    world.power(vm, "stop").await.unwrap();
    assert!(backends.resolve(&"aa".repeat(20)).is_empty());
    let (status, error) =
        world.call::<serde_json::Value>(Method::GET, &path("containers"), None).await.unwrap_err();
    assert_eq!((status, error.code), (502, NodeErrorCode::GuestUnreachable));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_say_what_the_node_is() {
    let mut world = World::new().await;
    let report = world.report(|_| true).await;
    assert_eq!(report.platform, Platform::Emulation);
    assert_eq!(report.endpoint, world.node.as_ref().unwrap().address().to_string());
    assert!(!report.maintenance && report.images.is_empty() && report.capacity.vcpu > 0);
    std::fs::write(world.dir.path().join("node/maintenance"), "").unwrap();
    let hash = world.spec(1, "").os_image_hash;
    let report = world.report(|report| report.maintenance && !report.images.is_empty()).await;
    assert_eq!(report.images[0].os_image_hash, hash);
    world.end().await;
}
