use cloister_app_compose::{AppId, OsImageHash};
use cloister_fleet_tls::{Identity, JoinToken};
use cloister_node::{CallError, EnrolError, Node, StartError, enrol};
use cloister_node_api::{NodeErrorCode, VmState, paths};
use reqwest::Method;

use crate::support::World;

#[tokio::test(flavor = "multi_thread")]
async fn only_the_control_plane_may_call() {
    let world = World::new().await;
    assert_eq!(world.call_as(&Identity::Node("node-2".to_owned())).await, 403);
    assert_eq!(world.call_as(&Identity::ControlPlane).await, 404);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_talks_to_nobody_but_the_control_plane() {
    let world = World::new().await;
    let somebody = world.node.as_ref().unwrap().address().to_string();
    // A node of the same installation, with a certificate of the same authority.
    let token = JoinToken::new(world.authority.certificate_der(), [1; 32]);
    let error = enrol(&somebody, &token, "node-2", Vec::new()).await.err().unwrap();
    assert!(matches!(error, EnrolError::Call(CallError::WrongPeer)), "{error:?}");
    let other = JoinToken::new(b"another authority", [1; 32]);
    let error = enrol(&somebody, &other, "node-2", Vec::new()).await.err().unwrap();
    assert!(matches!(error, EnrolError::Call(CallError::Io(_))), "{error:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_identity_belongs_to_one_vm() {
    let mut world = World::new().await;
    let first = world.running(1, "").await;
    let second = world.running(2, "").await;
    assert!(world.get(first).await.unwrap().instance_id.is_some());
    assert_eq!(world.get(second).await.unwrap().instance_id, None, "the same, claimed later");

    // An app that is called like the first guest's instance: even before it runs, the name is its own.
    let mut victim = world.spec(3, "");
    victim.app_id = AppId::from_bytes([0xab; 20]);
    let backends = world.node.as_ref().unwrap().backends();
    let named = || backends.resolve(&"ab".repeat(20)).iter().map(|backend| backend.vm).collect::<Vec<_>>();
    assert_eq!(named(), [first]);
    world.prepare(&victim).await.unwrap();
    assert!(named().is_empty());
    world.power(victim.vm_uuid, "start").await.unwrap();
    assert_eq!(named(), [victim.vm_uuid]);
    drop(backends);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_orders_are_refused_and_leave_nothing() {
    let world = World::new().await;
    let good = world.spec(1, "");
    let bad = |change: &dyn Fn(&mut cloister_node_api::VmSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        spec
    };
    for spec in [
        bad(&|spec| spec.vcpu = 0),
        bad(&|spec| spec.memory_mb = 1),
        bad(&|spec| spec.disk_gb = 0),
        bad(&|spec| spec.encrypted_env = Some("zz".to_owned())),
        bad(&|spec| spec.kms_urls = vec!["https://kms".to_owned(); 17]),
        bad(&|spec| spec.kms_urls = vec!["x".repeat(1025)]),
    ] {
        let (status, error) = world.prepare(&spec).await.unwrap_err();
        assert_eq!((status, error.code), (400, NodeErrorCode::Invalid), "{error:?}");
    }
    let path = format!("{}/{}", paths::VMS, uuid::Uuid::from_u128(9));
    let (status, _) = world.raw(Method::PUT, &path, Some(serde_json::to_value(&good).unwrap())).await;
    assert_eq!(status, 400, "two ids");
    let (status, _) = world.raw(Method::PUT, &path, Some(serde_json::json!([]))).await;
    assert_eq!(status, 400);
    let (status, _) = world.raw(Method::GET, "/v1/vms/nonsense", None).await;
    assert_eq!(status, 400);
    assert!(!world.vm_dir(good.vm_uuid).exists());

    world.prepare(&bad(&|spec| spec.disk_gb = 3)).await.unwrap();
    let (_, error) = world.prepare(&good).await.unwrap_err();
    assert_eq!(
        error.message,
        "a CVM's disk can grow and never shrink: ask for at least the size that it has"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_that_cannot_work_say_why_and_leave_nothing_running() {
    let mut world = World::new().await;
    let mut unknown = world.spec(1, "");
    unknown.os_image_hash = OsImageHash::from_bytes([9; 32]);
    let broken = world.spec(2, "broken");
    std::fs::write(world.dir.path().join("images/broken/rootfs.erofs"), "other").unwrap();
    let dying = world.spec(3, "die");
    let mut huge = world.spec(4, "");
    huge.memory_mb = 4 * 1024 * 1024;
    for (spec, status, code, text) in [
        (unknown, 404, NodeErrorCode::BadImage, "no intact guest image"),
        (broken, 404, NodeErrorCode::BadImage, "no intact guest image"),
        (dying, 500, NodeErrorCode::Internal, "ended at start: cannot set up guest memory 'pc.ram'"),
        (huge, 507, NodeErrorCode::OutOfResources, "MiB of memory left"),
    ] {
        world.prepare(&spec).await.unwrap();
        let (got, error) = world.power(spec.vm_uuid, "start").await.unwrap_err();
        assert_eq!((got, error.code), (status, code), "{error:?}");
        assert!(error.message.contains(text), "{error:?}");
        assert_eq!(world.get(spec.vm_uuid).await.unwrap().state, VmState::Stopped);
    }
    let vm = world.running(5, "").await;
    assert_eq!(world.get(vm).await.unwrap().state, VmState::Running);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn starting_a_node_fails_with_advice() {
    let mut world = World::prepared().await;
    world.config.socket_dir = Some(world.dir.path().join("x".repeat(80)));
    assert!(matches!(Node::start(world.config.clone()).await, Err(StartError::SocketDir(_))));
    world.config.socket_dir = None;
    world.config.qemu = "/nowhere/qemu".into();
    let error = Node::start(world.config.clone()).await.err().unwrap();
    assert!(error.to_string().contains("qemu-system-x86"), "{error}");
    world.config.listen = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(Node::start(world.config.clone()).await, Err(StartError::Endpoint)));
}
