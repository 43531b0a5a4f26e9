use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use tar::EntryType;
use tempfile::tempdir;
use tokio::io::AsyncWriteExt as _;

use super::archives::{Tar, describe, docker_archive, gzip, oci_archive, oci_image, oci_index};
use super::{limits, open};
use crate::images::{AppImages, Digest, ImageError, Limits};

const ACME: i64 = 1;
const OTHER: i64 = 2;

fn files_below(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Nothing of a failed import stays.
fn assert_empty(dir: &Path) {
    for part in ["blobs", "staging", "records"] {
        assert_eq!(files_below(&dir.join(part)), Vec::<String>::new(), "{part}");
    }
}

async fn refused(archive: &[u8], limits: Limits) -> ImageError {
    let dir = tempdir().unwrap();
    let store = AppImages::open(dir.path(), limits).unwrap();
    let error = store.import(ACME, Some("a:1"), archive).await.unwrap_err();
    assert_empty(dir.path());
    error
}

#[tokio::test]
async fn a_docker_archive_is_kept_under_its_own_name_and_survives_a_restart() {
    let dir = tempdir().unwrap();
    let archive = docker_archive(&["hello:1"], b"layer").finish();
    let store = open(dir.path());
    let image = store.import(ACME, None, &archive[..]).await.unwrap();
    assert_eq!(image.reference, "docker.io/library/hello:1");
    assert!(matches!(AppImages::open(dir.path(), limits()), Err(ImageError::InUse)));
    // The same image, compressed and by another name, is the same manifest.
    let again = store.import(ACME, Some("ghcr.io/me/x"), &gzip(&archive)[..]).await.unwrap();
    assert_eq!((again.reference.as_str(), &again.digest), ("ghcr.io/me/x:latest", &image.digest));
    assert_eq!(files_below(&dir.path().join("blobs")).len(), 3, "layer, configuration, manifest");
    drop(store);
    fs::create_dir(dir.path().join("staging/left")).unwrap();
    fs::write(dir.path().join("blobs/garbage"), "x").unwrap();
    assert_eq!(open(dir.path()).list(ACME), [image, again]);
    assert_eq!(files_below(&dir.path().join("blobs")).len(), 3);
    assert_eq!(files_below(&dir.path().join("staging")).len(), 0);
}

#[tokio::test]
async fn nothing_works_on_files_once_an_upload_that_was_cut_off_has_ended() {
    let dir = tempdir().unwrap();
    let store = open(dir.path());
    // A half of it has arrived at once, and takes a while to be unpacked.
    let archive = gzip(&docker_archive(&["hello:1"], &vec![0; 64 << 20]).finish());
    let (mut client, upload) = tokio::io::duplex(archive.len() / 2);
    tokio::select! {
        stored = store.import(ACME, None, upload) => panic!("it is not all there: {stored:?}"),
        sent = client.write_all(&archive) => sent.unwrap(),
    }
    store.ended().await;
    assert_empty(dir.path());
}

#[tokio::test]
async fn an_oci_archive_keeps_its_digest() {
    let dir = tempdir().unwrap();
    let store = open(dir.path());
    let image = store.import(ACME, None, &oci_archive("quay.io/me/app:2", b"layer")[..]).await.unwrap();
    let (_, descriptor) = oci_image(Tar::new(), b"layer");
    assert_eq!(image.reference, "quay.io/me/app:2");
    assert_eq!(json!(image.digest), descriptor["digest"]);
}

#[tokio::test]
async fn an_index_may_lack_platforms_but_not_all() {
    let (tar, present) = oci_image(Tar::new(), b"layer");
    let absent = describe("application/vnd.oci.image.manifest.v1+json", b"absent");
    let nested = oci_index(&[absent.clone(), present]);
    let root = describe("application/vnd.oci.image.index.v1+json", nested.as_bytes());
    let archive = tar.blob(&nested).file("index.json", oci_index(&[root])).finish();
    let dir = tempdir().unwrap();
    let image = open(dir.path()).import(ACME, Some("a"), &archive[..]).await.unwrap();
    assert_eq!(image.digest, Digest::of(nested.as_bytes()).to_string());

    let hollow = oci_index(&[absent]);
    let root = describe("application/vnd.oci.image.index.v1+json", hollow.as_bytes());
    let archive = Tar::new().blob(&hollow).file("index.json", oci_index(&[root])).finish();
    assert!(matches!(refused(&archive, limits()).await, ImageError::Malformed(_)));
}

#[tokio::test]
async fn the_name_must_be_clear() {
    let dir = tempdir().unwrap();
    let store = open(dir.path());
    for (tags, count) in [(&[][..], 0), (&["a:1", "a:2"][..], 2)] {
        let archive = docker_archive(tags, b"layer").finish();
        let error = store.import(ACME, None, &archive[..]).await.unwrap_err();
        assert!(matches!(error, ImageError::Ambiguous(found) if found == count), "{error}");
        assert_eq!(
            store.import(ACME, Some("b"), &archive[..]).await.unwrap().reference,
            "docker.io/library/b:latest"
        );
    }
    let (tar, first) = oci_image(Tar::new(), b"one");
    let (tar, mut second) = oci_image(tar, b"two");
    second["annotations"] = json!({ "io.containerd.image.name": "docker.io/library/second:1" });
    let archive = tar.file("index.json", oci_index(&[first, second.clone()])).finish();
    let image = store.import(ACME, Some("second:1"), &archive[..]).await.unwrap();
    assert_eq!(json!(image.digest), second["digest"]);
    assert!(matches!(store.import(ACME, Some("x"), &archive[..]).await, Err(ImageError::Ambiguous(0))));
    assert!(matches!(store.import(ACME, Some("../x"), &archive[..]).await, Err(ImageError::Reference(_))));
}

#[tokio::test]
async fn archives_that_are_not_images() {
    let layer = b"layer";
    let (tar, descriptor) = oci_image(Tar::new(), layer);
    let complete = tar.file("index.json", oci_index(std::slice::from_ref(&descriptor))).finish();
    let without_blobs = Tar::new().file("index.json", oci_index(std::slice::from_ref(&descriptor))).finish();
    let mut lying = descriptor.clone();
    lying["size"] = json!(1);
    let (tar, _) = oci_image(Tar::new(), layer);
    let wrong_size = tar.file("index.json", oci_index(&[lying])).finish();
    let mut odd = descriptor;
    odd["mediaType"] = json!("text/plain");
    let (tar, _) = oci_image(Tar::new(), layer);
    let odd_kind = tar.file("index.json", oci_index(&[odd])).finish();
    let config = json!({ "rootfs": { "diff_ids": [Digest::of(b"other")] } }).to_string();
    let images = json!([{ "Config": "c", "RepoTags": null, "Layers": ["l"] }]).to_string();
    let wrong_layer = Tar::new().file("manifest.json", &images).file("c", &config).file("l", layer).finish();
    let looping =
        Tar::new().file("manifest.json", &images).file("c", &config).symlink("l", "m").symlink("m", "l");
    for (what, archive) in [
        ("empty", Tar::new().finish()),
        ("neither layout", Tar::new().file("x", "y").finish()),
        ("no json", Tar::new().file("index.json", "{").finish()),
        ("missing blobs", without_blobs),
        ("wrong size", wrong_size),
        ("odd kind", odd_kind),
        ("layer with another digest", wrong_layer),
        ("links in a circle", looping.finish()),
        (
            "blob with a wrong name",
            Tar::new().file(&format!("blobs/sha256/{}", "0".repeat(64)), "x").finish(),
        ),
        ("twice", Tar::new().file("a", "1").file("./a", "2").finish()),
        ("outside", Tar::new().file("../a", "1").finish()),
        ("absolute", Tar::new().file("/etc/passwd", "1").finish()),
        ("link outside", Tar::new().symlink("a/b", "../../c").finish()),
        ("absolute link", Tar::new().symlink("a", "/etc/passwd").finish()),
        ("device", Tar::new().entry(EntryType::Char, "null", None, b"").finish()),
    ] {
        let error = refused(&archive, limits()).await;
        assert!(matches!(error, ImageError::Malformed(_)), "{what}: {error}");
    }
    for (what, archive) in [
        ("text", b"hello, this is no archive".repeat(100)),
        ("cut off", complete[..complete.len() / 2].to_vec()),
        ("cut off gzip", gzip(&complete)[..100].to_vec()),
    ] {
        let error = refused(&archive, limits()).await;
        assert!(matches!(error, ImageError::Archive(_)), "{what}: {error}");
    }
}

#[tokio::test]
async fn limits_hold() {
    let bomb = gzip(&docker_archive(&["a"], &vec![0; 4 << 20]).finish());
    assert!(bomb.len() < 100_000);
    let small = Limits { archive_bytes: 1 << 20, ..limits() };
    assert!(matches!(refused(&bomb, small).await, ImageError::TooLarge { what: "bytes", .. }));
    let long_name = Tar::new().entry(EntryType::GNULongName, "x", None, &vec![b'a'; 2 << 20]).finish();
    assert!(matches!(refused(&long_name, small).await, ImageError::TooLarge { what: "bytes", .. }));
    let huge_layer =
        Tar::new().entry(EntryType::XHeader, "x", None, b"20 size=10000000000\n").file("l", "").finish();
    assert!(matches!(refused(&huge_layer, limits()).await, ImageError::TooLarge { .. }));
    let entries = (0..20).fold(Tar::new(), |tar, n| tar.file(&format!("{n}"), "")).finish();
    let few = Limits { entries: 10, ..limits() };
    assert!(matches!(refused(&entries, few).await, ImageError::TooLarge { what: "entries", .. }));
    let index = Tar::new().file("index.json", vec![b' '; 100]).finish();
    let short = Limits { manifest_bytes: 99, ..limits() };
    assert!(matches!(refused(&index, short).await, ImageError::TooLarge { .. }));
    let archive = docker_archive(&["a"], b"layer").finish();
    let full = Limits { disk_reserve: u64::MAX, ..limits() };
    assert!(matches!(refused(&archive, full).await, ImageError::DiskFull));

    let dir = tempdir().unwrap();
    let store = AppImages::open(dir.path(), Limits { images_per_workspace: 1, ..limits() }).unwrap();
    store.import(ACME, Some("a"), &archive[..]).await.unwrap();
    store.import(ACME, Some("a"), &archive[..]).await.unwrap();
    store.import(OTHER, Some("b"), &archive[..]).await.unwrap();
    assert!(matches!(store.import(ACME, Some("b"), &archive[..]).await, Err(ImageError::TooManyImages(1))));
}

#[tokio::test]
async fn an_upload_that_stalls_or_is_given_up_frees_its_place() {
    let dir = tempdir().unwrap();
    let limits = Limits { imports_per_workspace: 1, upload_pause: Duration::from_millis(50), ..limits() };
    let store = AppImages::open(dir.path(), limits).unwrap();
    let (_stalled, upload) = tokio::io::duplex(64);
    assert!(matches!(store.import(ACME, Some("a"), upload).await, Err(ImageError::Archive(_))));
    let archive = docker_archive(&["a"], b"layer").finish();
    store.import(ACME, None, &archive[..]).await.unwrap();

    let (_open, upload) = tokio::io::duplex(64);
    let given_up = store.import(ACME, Some("b"), upload);
    let busy = store.import(ACME, None, &archive[..]);
    tokio::pin!(given_up);
    assert!(futures_util::poll!(&mut given_up).is_pending());
    assert!(matches!(busy.await, Err(ImageError::Busy(1))));
}

#[tokio::test]
async fn blobs_live_as_long_as_an_image_of_anybody_uses_them() {
    let dir = tempdir().unwrap();
    let store = open(dir.path());
    let archive = docker_archive(&["a"], b"layer").finish();
    let image = store.import(ACME, None, &archive[..]).await.unwrap();
    store.import(OTHER, None, &archive[..]).await.unwrap();
    assert!(store.delete(ACME, "a").await.unwrap());
    assert!(!store.delete(ACME, "a").await.unwrap());
    assert_eq!((store.list(ACME), store.list(OTHER)), (vec![], vec![image]));
    assert_eq!(files_below(&dir.path().join("blobs")).len(), 3);
    // Replacing by another image leaves the blobs of that one only.
    store.import(OTHER, Some("a"), &oci_archive("x", b"other")[..]).await.unwrap();
    assert!(!dir.path().join("blobs").join(Digest::of(b"layer").hex()).exists());
    assert!(store.delete(OTHER, "docker.io/library/a:latest").await.unwrap());
    assert_eq!(files_below(&dir.path().join("blobs")).len(), 0);
}

#[tokio::test]
async fn an_image_whose_blob_was_damaged_is_left_out() {
    let dir = tempdir().unwrap();
    let store = open(dir.path());
    store.import(ACME, None, &docker_archive(&["a"], b"layer").finish()[..]).await.unwrap();
    drop(store);
    fs::write(dir.path().join("blobs").join(Digest::of(b"layer").hex()), "cut").unwrap();
    assert_eq!(open(dir.path()).list(ACME), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_damaged_archive_leaves_all_or_nothing(at in 0usize..8000, value: u8, cut in 4000usize..12000, zip: bool) {
        let mut archive = docker_archive(&["a"], b"layer").finish();
        if let Some(byte) = archive.get_mut(at) { *byte = value; }
        archive.truncate(cut);
        if zip { archive = gzip(&archive); }
        let dir = tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let imported = runtime.block_on(async { open(dir.path()).import(ACME, None, &archive[..]).await });
        prop_assert_eq!(files_below(&dir.path().join("staging")).len(), 0);
        match imported {
            Ok(image) => {
                prop_assert_eq!(open(dir.path()).list(ACME), vec![image]);
                for name in files_below(&dir.path().join("blobs")) {
                    let mut bytes = Vec::new();
                    fs::File::open(dir.path().join("blobs").join(&name)).unwrap().read_to_end(&mut bytes).unwrap();
                    prop_assert_eq!(Digest::of(&bytes).hex(), name);
                }
            }
            Err(_) => assert_empty(dir.path()),
        }
    }
}

#[tokio::test]
async fn a_workspace_has_its_share_of_the_disk() {
    let dir = tempdir().unwrap();
    let store = AppImages::open(dir.path(), Limits { workspace_bytes: 20_000, ..limits() }).unwrap();
    let (large, other) = (vec![1; 15_000], vec![2; 15_000]);
    let image = |layer: &[u8]| docker_archive(&["x"], layer).finish();
    for name in ["a", "b", "a"] {
        store.import(ACME, Some(name), &image(&large)[..]).await.expect("what is shared counts once");
    }
    let error = store.import(ACME, Some("c"), &image(&other)[..]).await.unwrap_err();
    assert!(matches!(error, ImageError::WorkspaceFull(20_000)), "{error}");
    store.import(OTHER, Some("c"), &image(&other)[..]).await.unwrap();
}

#[tokio::test]
async fn an_image_that_cannot_be_recorded_leaves_no_blobs() {
    let dir = tempdir().unwrap();
    let store = open(dir.path());
    fs::write(dir.path().join("records/1"), "in the way").unwrap();
    let archive = docker_archive(&["x"], b"layer").finish();
    store.import(ACME, Some("a"), &archive[..]).await.unwrap_err();
    assert_eq!(files_below(&dir.path().join("blobs")), Vec::<String>::new());
}
