use cloister_node::{Node, OnExit, StartError};
use cloister_node_api::{NodeErrorCode, VmState};

use crate::support::World;

const GPUS: [&str; 2] = ["ffff:00:00.0", "ffff:00:01.0"];

async fn world() -> World {
    let mut world = World::prepared().await;
    world.config.emulated_gpus = 2;
    world.start().await;
    world
}

fn named(gpus: &[&str]) -> Vec<String> {
    gpus.iter().map(|gpu| (*gpu).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_is_in_one_running_vm_also_after_a_restart() {
    let mut world = world().await;
    let report = world.report(|_| true).await;
    assert_eq!(report.gpus.iter().map(|gpu| gpu.slot.as_str()).collect::<Vec<_>>(), GPUS);
    assert!(report.gpus.iter().all(|gpu| gpu.assignable));

    let (mut first, mut second) = (world.spec(1, ""), world.spec(2, ""));
    (first.gpus, second.gpus) = (named(&GPUS), named(&GPUS[1..]));
    world.prepare(&first).await.unwrap();
    world.power(first.vm_uuid, "start").await.unwrap();
    world.prepare(&second).await.unwrap();
    // What the process has counts, not what the next one is to have.
    first.gpus.clear();
    world.prepare(&first).await.unwrap();
    for _ in 0..2 {
        let (status, error) = world.power(second.vm_uuid, "start").await.unwrap_err();
        assert_eq!((status, error.code), (507, NodeErrorCode::OutOfResources));
        assert!(error.message.contains("GPU ffff:00:01.0 is used by another CVM"), "{error:?}");
        world.stop(OnExit::LeaveRunning).await;
        world.start().await;
    }
    world.power(first.vm_uuid, "stop").await.unwrap();
    assert_eq!(world.power(second.vm_uuid, "start").await.unwrap().state, VmState::Running);
    assert_eq!(world.power(first.vm_uuid, "start").await.unwrap().state, VmState::Running);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_that_are_not_there_are_refused() {
    let world = world().await;
    for gpus in
        [&["ffff:00:02.0"][..], &["41:00.0"], &["0000:41:00.0,x=y"], &[GPUS[0], GPUS[0]], &[GPUS[0]; 17]]
    {
        let mut spec = world.spec(1, "");
        spec.gpus = named(gpus);
        let (status, error) = world.prepare(&spec).await.unwrap_err();
        assert_eq!((status, error.code), (400, NodeErrorCode::Invalid), "{gpus:?}: {error:?}");
        assert!(!world.vm_dir(spec.vm_uuid).exists());
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_emulates_a_few_gpus_at_most() {
    let mut world = World::prepared().await;
    world.config.emulated_gpus = 9;
    assert!(matches!(Node::start(world.config.clone()).await, Err(StartError::EmulatedGpus)));
}
