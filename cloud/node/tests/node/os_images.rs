use std::fs;

use cloister_app_compose::OsImageHash;
use cloister_node_api::VmState;

use crate::control_plane::archive;
use crate::support::{World, spec, write_image};

#[tokio::test(flavor = "multi_thread")]
async fn images_of_the_catalogue_are_fetched_and_only_good_ones_offered() {
    let mut world = World::prepared().await;
    let elsewhere = world.dir.path().join("elsewhere");
    let good = write_image(&elsewhere, "good", "");
    let whole = archive(&elsewhere.join("good"));
    let late = write_image(&elsewhere, "late", "deaf");
    let torn_at = 2000;
    // Another image under its name, a file that nobody vouches for, and no image at all.
    let [wrong, extra, nonsense] = [
        write_image(&elsewhere, "wrong", "stuck"),
        write_image(&elsewhere, "extra", "sick"),
        OsImageHash::from_bytes([7; 32]),
    ];
    fs::write(elsewhere.join("extra/smuggled"), "x").unwrap();
    world.catalogue.offer(wrong, whole.clone(), None);
    world.catalogue.offer(extra, archive(&elsewhere.join("extra")), None);
    world.catalogue.offer(nonsense, b"nonsense".repeat(1000), None);
    world.catalogue.offer(late, archive(&elsewhere.join("late")), Some(torn_at));
    world.catalogue.offer(good, whole, None);
    let fetched = world.dir.path().join("node/os-images");
    let leftover = fetched.join(".fetching-of-a-crash");
    fs::create_dir_all(&leftover).unwrap();
    fs::write(leftover.join("vmlinuz"), "half").unwrap();

    world.start().await;
    let report = world.report(|report| report.images.len() >= 2).await;
    let mut offered: Vec<_> = report.images.iter().map(|image| image.os_image_hash).collect();
    offered.sort_by_key(|hash| [late, good].iter().position(|known| known == hash));
    assert_eq!(offered, [late, good]);
    assert_eq!(world.catalogue.asked(late), 2, "once more after the first stream broke off");
    for refused in [wrong, extra] {
        assert_eq!(world.catalogue.asked(refused), 1, "refused and left alone");
    }
    let mut left: Vec<_> = fs::read_dir(&fetched)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let mut expected = [good.to_string(), late.to_string()];
    expected.sort();
    assert_eq!(left, expected);

    let spec = spec(1, good);
    world.prepare(&spec).await.unwrap();
    assert_eq!(world.power(spec.vm_uuid, "start").await.unwrap().state, VmState::Running);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_was_damaged_is_fetched_again() {
    let mut world = World::prepared().await;
    let elsewhere = world.dir.path().join("elsewhere");
    let hash = write_image(&elsewhere, "good", "");
    world.catalogue.offer(hash, archive(&elsewhere.join("good")), None);
    world.start().await;
    world.report(|report| report.images.len() == 1).await;
    let rootfs = world.dir.path().join("node/os-images").join(hash.to_string()).join("rootfs.erofs");
    fs::write(&rootfs, "damaged").unwrap();
    while fs::read(&rootfs).ok().as_deref() != Some(b"root") {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.catalogue.asked(hash), 2);
    world.end().await;
}
