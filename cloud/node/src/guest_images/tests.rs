use cloister_evidence::Measurement;
use sha2::{Digest, Sha256};

use super::*;

const CMDLINE: &str = "quiet cloister.rootfs_blocks=1";

/// Writes an image with tiny files and returns its hash.
fn write_image(images: &Path, name: &str) -> OsImageHash {
    let dir = images.join(name);
    fs::create_dir_all(&dir).unwrap();
    let metadata = serde_json::json!({
        "name": name, "version": "0.1.0", "is_dev": true, "bios": "bios.bin", "kernel": "vmlinuz",
        "initrd": "initrd.img", "rootfs": "rootfs.erofs", "cmdline": CMDLINE,
    });
    let measurement = ImageMeasurement {
        firmware: Measurement::of("firmware"),
        kernel: Measurement::of("kernel"),
        initrd: Measurement::of("initrd"),
        cmdline: CMDLINE.to_owned(),
    };
    let files = [
        ("bios.bin", "firmware".to_owned()),
        ("vmlinuz", "kernel".to_owned()),
        ("initrd.img", "initrd".to_owned()),
        ("rootfs.erofs", "root".to_owned()),
        ("metadata.json", metadata.to_string()),
        ("measurement.json", serde_json::to_string(&measurement).unwrap()),
    ];
    let mut sums = String::new();
    for (file, contents) in files {
        fs::write(dir.join(file), &contents).unwrap();
        sums += &format!("{}  {file}\n", hex::encode(Sha256::digest(contents)));
    }
    let hash = OsImageHash::from_bytes(Sha256::digest(&sums).into());
    fs::write(dir.join("sha256sum.txt"), sums).unwrap();
    fs::write(dir.join(DIGEST), format!("{hash}\n")).unwrap();
    hash
}

fn flip_last_bit(file: &Path) {
    let mut contents = fs::read(file).unwrap();
    *contents.last_mut().unwrap() ^= 1;
    fs::write(file, contents).unwrap();
}

#[test]
fn offers_good_images_and_drops_one_when_a_file_changes() {
    let dir = tempfile::tempdir().unwrap();
    let images = GuestImages::new(vec![dir.path().to_owned()]);
    assert_eq!(images.scan(), []);
    let first = write_image(dir.path(), "a-0.1.0");
    let second = write_image(dir.path(), "b-0.1.0");
    assert_eq!(images.scan().len(), 2);
    assert_eq!(images.find(second).unwrap().description.name, "b-0.1.0");
    fs::write(dir.path().join("b-0.1.0/rootfs.erofs"), "tampered").unwrap();
    assert_eq!(images.find(second), None);
    assert!(images.find(first).is_some());
    write_image(dir.path(), "b-0.1.0");
    assert!(images.find(second).is_some());
}

#[test]
fn an_image_is_the_one_that_its_directory_names() {
    let images = tempfile::tempdir().unwrap();
    let hash = write_image(images.path(), "a");
    let dir = images.path().join("a");
    for (digest, is_good) in [
        (hash.to_string(), true),
        ("7".repeat(64), false),
        (hash.to_string()[1..].to_owned(), false),
        (String::new(), false),
    ] {
        fs::write(dir.join(DIGEST), &digest).unwrap();
        assert_eq!(verify(&dir).is_ok(), is_good, "{digest}");
    }
    fs::remove_file(dir.join(DIGEST)).unwrap();
    assert!(matches!(verify(&dir), Err(CheckError::Missing(name)) if name == DIGEST));
}

#[test]
fn the_description_of_a_machine_leads_from_the_hash_to_the_measurement() {
    let images = tempfile::tempdir().unwrap();
    let hash = write_image(images.path(), "a");
    let image = verify(&images.path().join("a")).unwrap();
    let config = image.vm_config(2, 1024);
    assert_eq!(config.os_image_hash, hash);
    assert_eq!((config.cpu_count, config.memory_size), (2, 1 << 30));
    assert_eq!(config.image_measurement().unwrap(), image.measurement);
}

/// The new image has a pipe among its files, so that hashing it lasts until the test lets it end.
#[test]
fn a_known_image_is_found_while_a_new_one_is_hashed() {
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let dir = tempfile::tempdir().unwrap();
    let known = write_image(dir.path(), "known");
    let images = GuestImages::new(vec![dir.path().to_owned()]);
    assert_eq!(images.scan().len(), 1);
    write_image(dir.path(), "new");
    let pipe = dir.path().join("new/rootfs.erofs");
    fs::remove_file(&pipe).unwrap();
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (found, finds) = mpsc::channel();
    std::thread::scope(|scope| {
        let scan = scope.spawn(|| images.scan());
        // Opens when the other end does: hashing is under way.
        let writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        scope.spawn(|| found.send(images.find(known).is_some()));
        let in_time = finds.recv_timeout(Duration::from_secs(10));
        drop(writer);
        assert_eq!(scan.join().unwrap().len(), 1, "the new one is broken");
        assert_eq!(in_time, Ok(true));
    });
    flip_last_bit(&dir.path().join("known/vmlinuz"));
    assert!(images.find(known).is_none());
}
