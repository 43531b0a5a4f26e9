use cloister_node_api::{VmState, paths};
use reqwest::Method;

use crate::support::{World, runs};

/// As on a full disk: the power state of a VM cannot be written down.
fn refuse_notes(world: &World, vm: uuid::Uuid) {
    std::fs::create_dir(world.vm_dir(vm).join("power.new")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn power_is_taken_away_although_it_cannot_be_noted() {
    for verb in ["stop", "shutdown"] {
        let mut world = World::new().await;
        let vm = world.running(1, "").await;
        refuse_notes(&world, vm);
        world.power(vm, verb).await.unwrap_err();
        world.reported_state(vm, VmState::Stopped).await;
        assert!(!runs(world.pid(vm).unwrap()), "{verb}");
        std::fs::remove_dir(world.vm_dir(vm).join("power.new")).unwrap();
        assert_eq!(world.power(vm, verb).await.unwrap().state, VmState::Stopped, "and can be repeated");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_makes_room_on_a_full_disk() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let pid = world.pid(vm).unwrap();
    refuse_notes(&world, vm);
    let (status, _) = world.raw(Method::DELETE, &format!("{}/{vm}", paths::VMS), None).await;
    assert_eq!((status, world.vm_dir(vm).exists(), runs(pid)), (204, false, false));
    world.end().await;
}
