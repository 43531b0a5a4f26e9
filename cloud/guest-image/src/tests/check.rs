//! What a hash covers, and what a launch measures.

use proptest::prelude::*;

use super::*;

fn checked(files: &BTreeMap<&'static str, Vec<u8>>) -> Result<CheckedImage, CheckError> {
    let dir = tempfile::tempdir().unwrap();
    let hash = write(dir.path(), files);
    let image = CheckedImage::check(dir.path(), None, Others::Refused)?;
    assert_eq!(image.hash, hash);
    Ok(image)
}

/// Checks an image with another list of its files.
fn with_list(sums: &str) -> Result<CheckedImage, CheckError> {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files());
    fs::write(dir.path().join(CHECKSUMS), sums).unwrap();
    CheckedImage::check(dir.path(), None, Others::Ignored)
}

/// Makes something at a path.
type Addition = fn(&Path);

fn flip_last_bit(bytes: &mut [u8]) {
    *bytes.last_mut().unwrap() ^= 1;
}

#[test]
fn an_image_is_what_it_says() {
    let files = files();
    let image = checked(&files).unwrap();
    assert_eq!((image.metadata.name.as_str(), image.metadata.is_dev), ("cloister-0.1.0", true));
    assert_eq!(image.checksum_file, list(&files));
    assert_eq!(image.measurement_file.as_bytes(), files[MEASUREMENT]);
    let bytes = files.values().map(Vec::len).sum::<usize>() + image.checksum_file.len();
    assert_eq!(image.size_bytes, bytes as u64);
}

#[test]
fn another_image_is_not_the_wanted_one() {
    let dir = tempfile::tempdir().unwrap();
    let hash = write(dir.path(), &files());
    assert_eq!(CheckedImage::check(dir.path(), Some(hash), Others::Refused).unwrap().hash, hash);
    let wanted = OsImageHash::from_bytes([7; 32]);
    let result = CheckedImage::check(dir.path(), Some(wanted), Others::Refused);
    assert!(matches!(result, Err(CheckError::OtherImage(other)) if other == hash));
}

#[test]
fn one_changed_bit_of_any_file_is_noticed_or_gives_another_hash() {
    let before = checked(&files()).unwrap();
    for (file, what) in [("bios.bin", "firmware"), ("vmlinuz", "kernel"), ("initrd.img", "initial RAM disk")]
    {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &files());
        let mut changed = files();
        flip_last_bit(changed.get_mut(file).unwrap());
        fs::write(dir.path().join(file), &changed[file]).unwrap();
        let noticed = CheckedImage::check(dir.path(), None, Others::Refused);
        assert!(matches!(noticed, Err(CheckError::Mismatch(name)) if name == file));

        assert!(matches!(checked(&changed), Err(CheckError::Measurement(name)) if name == what));
        measure(&mut changed);
        let after = checked(&changed).unwrap();
        assert_ne!(after.hash, before.hash);
        assert_ne!(after.measurement.launch(2, 1 << 30), before.measurement.launch(2, 1 << 30));
    }
}

#[test]
fn what_is_parsed_is_what_was_hashed() {
    for name in [METADATA, MEASUREMENT] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &files());
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name), text.replace("blocks=1", "blocks=2")).unwrap();
        let result = CheckedImage::check(dir.path(), None, Others::Refused);
        assert!(matches!(result, Err(CheckError::Mismatch(file)) if file == name));
    }
}

#[test]
fn the_command_line_is_the_measured_one() {
    let mut files = files();
    let metadata = String::from_utf8(files[METADATA].clone()).unwrap();
    files.insert(METADATA, metadata.replace("blocks=1", "blocks=2").into_bytes());
    assert!(matches!(checked(&files), Err(CheckError::Measurement("kernel command line"))));
}

#[test]
fn refuses_files_that_the_hash_does_not_cover() {
    let files = files();
    for missing in files.keys() {
        let result = with_list(&list(files.iter().filter(|(name, _)| *name != missing)));
        assert!(matches!(result, Err(CheckError::Uncovered(name)) if name == *missing), "{missing}");
    }
}

#[test]
fn files_that_are_not_there_are_missed() {
    for missing in files().into_keys().chain([CHECKSUMS]) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &files());
        fs::remove_file(dir.path().join(missing)).unwrap();
        let result = CheckedImage::check(dir.path(), None, Others::Refused);
        assert!(matches!(result, Err(CheckError::Missing(name)) if name == missing), "{missing}");
    }
}

#[test]
fn other_files_are_refused_where_they_would_go_on() {
    let additions: [(&str, Addition); 3] = [
        ("extra", |path| fs::write(path, "").unwrap()),
        ("dir", |path| fs::create_dir(path).unwrap()),
        ("link", |path| std::os::unix::fs::symlink("vmlinuz", path).unwrap()),
    ];
    for (other, add) in additions {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &files());
        add(&dir.path().join(other));
        CheckedImage::check(dir.path(), None, Others::Ignored).unwrap();
        let result = CheckedImage::check(dir.path(), None, Others::Refused);
        assert!(matches!(result, Err(CheckError::Uncovered(name)) if name == other), "{other}");
    }
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files());
    fs::rename(dir.path().join("vmlinuz"), dir.path().join("bios")).unwrap();
    std::os::unix::fs::symlink("bios", dir.path().join("vmlinuz")).unwrap();
    let result = CheckedImage::check(dir.path(), None, Others::Refused);
    assert!(matches!(result, Err(CheckError::Uncovered(_))), "a link is no plain file");
}

#[test]
fn lists_that_are_none() {
    let good = list(&files());
    let hash = "0".repeat(64);
    for sums in [
        format!("{good}{}", good.lines().next().unwrap()),
        format!("{hash}  ../x\n"),
        format!("{hash}  .hidden\n"),
        format!("{hash} x\n"),
        format!("{}  x\n", "0".repeat(63)),
        "\n".to_owned(),
        good.repeat(600),
    ] {
        let result = with_list(&sums);
        assert!(matches!(result, Err(CheckError::Malformed { file: CHECKSUMS, .. })), "{result:?}");
    }
}

#[test]
fn texts_that_are_none() {
    for name in [METADATA, MEASUREMENT] {
        for text in [b"{}".to_vec(), b"[".to_vec(), vec![0xff], vec![b' '; 300 * 1024]] {
            let mut files = files();
            files.insert(name, text);
            let result = checked(&files);
            assert!(matches!(result, Err(CheckError::Malformed { file, .. }) if file == name));
        }
    }
}

proptest! {
    #[test]
    fn no_list_leads_elsewhere(text in "([0-9a-f]{64}  [./a-z]{1,8}\n){0,3}") {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::create_dir(&image).unwrap();
        fs::write(image.join(CHECKSUMS), &text).unwrap();
        let is_elsewhere = text.lines().any(|line| line.contains('/') || line.contains(' ') && line[66..].starts_with('.'));
        let result = CheckedImage::check(&image, None, Others::Ignored);
        let is_refused = matches!(result, Err(CheckError::Malformed { .. }));
        prop_assert!(result.is_err() && (is_refused || !is_elsewhere));
    }
}
