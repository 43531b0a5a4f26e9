use proptest::prelude::*;

use super::*;

/// The files of an image that the list covers.
const FILES: [&str; 6] =
    ["bios.bin", "initrd.img", "measurement.json", "metadata.json", "rootfs.erofs", "vmlinuz"];
const CMDLINE: &str = "quiet cloister.rootfs_blocks=1";

/// Writes an image with tiny files and returns its hash.
fn write_image(images: &Path, name: &str) -> OsImageHash {
    let dir = images.join(name);
    fs::create_dir_all(&dir).unwrap();
    let metadata = serde_json::json!({
        "name": name, "version": "0.1.0", "is_dev": true, "bios": "bios.bin", "kernel": "vmlinuz",
        "initrd": "initrd.img", "rootfs": "rootfs.erofs", "cmdline": CMDLINE,
    });
    for (file, contents) in [("bios.bin", "firmware"), ("vmlinuz", "kernel"), ("initrd.img", "initrd")] {
        fs::write(dir.join(file), contents).unwrap();
    }
    fs::write(dir.join("rootfs.erofs"), "root").unwrap();
    fs::write(dir.join(METADATA), metadata.to_string()).unwrap();
    measure(&dir);
    list(&dir)
}

/// Makes `measurement.json` anew.
fn measure(dir: &Path) {
    let of = |name: &str| Measurement::of(fs::read(dir.join(name)).unwrap());
    let measurement = ImageMeasurement {
        firmware: of("bios.bin"),
        kernel: of("vmlinuz"),
        initrd: of("initrd.img"),
        cmdline: CMDLINE.to_owned(),
    };
    fs::write(dir.join(MEASUREMENT), serde_json::to_string(&measurement).unwrap()).unwrap();
}

/// Makes `sha256sum.txt` and `digest.txt` anew.
fn list(dir: &Path) -> OsImageHash {
    list_only(dir, &FILES)
}

fn list_only(dir: &Path, files: &[&str]) -> OsImageHash {
    let line =
        |file: &&str| format!("{}  {file}\n", hex::encode(Sha256::digest(fs::read(dir.join(file)).unwrap())));
    let sums: String = files.iter().map(line).collect();
    let hash = OsImageHash::from_bytes(Sha256::digest(&sums).into());
    fs::write(dir.join("sha256sum.txt"), sums).unwrap();
    fs::write(dir.join("digest.txt"), format!("{hash}\n")).unwrap();
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
fn one_changed_bit_of_any_file_is_noticed_or_gives_another_hash() {
    for (file, what) in [("bios.bin", "firmware"), ("vmlinuz", "kernel"), ("initrd.img", "initial RAM disk")]
    {
        let images = tempfile::tempdir().unwrap();
        let original = write_image(images.path(), "a");
        let dir = images.path().join("a");
        let before = verify(&dir).unwrap();

        flip_last_bit(&dir.join(file));
        assert!(matches!(verify(&dir), Err(ImageError::Mismatch(name)) if name == file));
        list(&dir);
        assert!(matches!(verify(&dir), Err(ImageError::Measurement(name)) if name == what));
        measure(&dir);
        assert!(matches!(verify(&dir), Err(ImageError::Mismatch(name)) if name == MEASUREMENT));
        let changed = list(&dir);

        let after = verify(&dir).unwrap();
        assert_eq!(after.description.os_image_hash, changed);
        assert_ne!(changed, original);
        let registers = |image: &GuestImage| {
            let launch = image.measurement.launch(2, 1 << 30);
            (launch.mrtd, launch.rtmr)
        };
        assert_ne!(registers(&before), registers(&after));
    }
}

#[test]
fn the_command_line_is_the_measured_one() {
    let images = tempfile::tempdir().unwrap();
    write_image(images.path(), "a");
    let dir = images.path().join("a");
    let metadata = fs::read_to_string(dir.join(METADATA)).unwrap();
    fs::write(dir.join(METADATA), metadata.replace("blocks=1", "blocks=2")).unwrap();
    list(&dir);
    assert!(matches!(verify(&dir), Err(ImageError::Measurement("kernel command line"))));
}

#[test]
fn refuses_files_that_the_hash_does_not_cover() {
    let images = tempfile::tempdir().unwrap();
    write_image(images.path(), "a");
    let dir = images.path().join("a");
    for missing in FILES {
        let others: Vec<_> = FILES.into_iter().filter(|file| *file != missing).collect();
        list_only(&dir, &others);
        assert!(matches!(verify(&dir), Err(ImageError::Uncovered(name)) if name == missing), "{missing}");
    }
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

proptest! {
    #[test]
    fn sums_never_name_files_elsewhere(text in "([0-9a-f]{64}  [./a-z]{1,8}\n){0,3}") {
        if let Ok(sums) = parse_sums(&text) {
            prop_assert!(sums.keys().all(|name| !name.contains('/') && name != ".."));
        }
    }
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
