//! Images from hostile and honest senders, and back to nodes.

use bytes::Bytes;
use cloister_evidence::{ImageMeasurement, Measurement};
use cloister_guest_image::CHECKSUMS;
use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::*;
use crate::store::tests::{cvm, embedded, ground, on_both};

/// The files of an image, `sha256sum.txt` last.
pub(crate) fn image_files(version: &str, is_dev: bool) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = [
        ("bios.bin", "firmware".to_owned()),
        ("initrd.img", "ram disk".to_owned()),
        ("measurement.json", measurement()),
        (
            "metadata.json",
            serde_json::json!({
                "name": format!("cloister-{version}"), "version": version, "is_dev": is_dev, "kernel": "vmlinuz",
                "initrd": "initrd.img", "rootfs": "rootfs.erofs", "bios": "bios.bin", "cmdline": "quiet",
            })
            .to_string(),
        ),
        ("rootfs.erofs", "root".to_owned()),
        ("vmlinuz", "kernel".to_owned()),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_owned(), text.into_bytes()))
    .collect();
    seal(&mut files);
    files
}

/// Adds the list of the files' hashes.
fn seal(files: &mut Vec<(String, Vec<u8>)>) {
    let line =
        |(name, bytes): &(String, Vec<u8>)| format!("{}  {name}\n", hex::encode(Sha256::digest(bytes)));
    let sums = files.iter().map(line).collect::<Vec<_>>().concat();
    files.push((CHECKSUMS.to_owned(), sums.into_bytes()));
}

/// What a launch of these files measures.
fn measurement() -> String {
    let measurement = ImageMeasurement {
        firmware: Measurement::of("firmware"),
        kernel: Measurement::of("kernel"),
        initrd: Measurement::of("ram disk"),
        cmdline: "quiet".to_owned(),
    };
    serde_json::to_string(&measurement).unwrap()
}

/// All hashes are right but that of the kernel in `measurement.json`.
fn with_another_kernel() -> Vec<(String, Vec<u8>)> {
    let mut files = image_files("0.1.0", false);
    files.retain(|(name, _)| name != CHECKSUMS);
    files.iter_mut().find(|(name, _)| name == "vmlinuz").unwrap().1 = b"evil".to_vec();
    seal(&mut files);
    files
}

pub(crate) fn hash_of(files: &[(String, Vec<u8>)]) -> OsImageHash {
    let (_, sums) = files.iter().find(|(name, _)| name == CHECKSUMS).unwrap();
    OsImageHash::from_bytes(Sha256::digest(sums).into())
}

/// Members as any sender writes them: the name goes into the header as it is.
pub(crate) fn archive_of(members: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (kind, name, contents) in members {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append(&header, *contents).unwrap();
    }
    archive.into_inner().unwrap()
}

pub(crate) fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let members: Vec<_> =
        files.iter().map(|(name, bytes)| (EntryType::Regular, name.as_str(), bytes.as_slice())).collect();
    archive_of(&members)
}

fn pieces(bytes: Vec<u8>) -> impl Stream<Item = Result<Bytes, io::Error>> + Unpin + Send {
    let bytes = Bytes::from(bytes);
    let starts = (0..bytes.len()).step_by(700);
    stream::iter(starts.map(move |start| Ok(bytes.slice(start..bytes.len().min(start + 700)))))
}

struct Place {
    dir: tempfile::TempDir,
    library: Library,
    store: Store,
    clock: Clock,
}

impl Place {
    fn new(store: Store) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = Library::open(dir.path().join("os-images")).unwrap();
        Self { dir, library, store, clock: Clock::manual("2026-01-21T10:00:00Z".parse().unwrap()) }
    }

    async fn add(&self, bytes: Vec<u8>) -> Result<OsImageRow, ImageError> {
        self.library.add(&self.store, &self.clock, pieces(bytes)).await
    }

    /// Names in the library's directory.
    fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("os-images")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    async fn downloaded(&self, hash: OsImageHash) -> Vec<u8> {
        let pieces: Vec<_> = self.library.download(hash).unwrap().collect().await;
        pieces.into_iter().flat_map(Result::unwrap).collect()
    }
}

#[tokio::test]
async fn an_image_goes_in_and_comes_out_again() {
    on_both(|store| async move {
        let place = Place::new(store);
        let files = image_files("0.1.0", false);
        let row = place.add(archive(&files)).await.unwrap();
        assert_eq!((row.os_image_hash, row.name.as_str()), (hash_of(&files), "cloister-0.1.0"));
        let size: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(row.size_bytes, i64::try_from(size).unwrap());
        assert_eq!(place.kept(), [row.os_image_hash.to_string()]);
        // Another control plane takes what this one gives, so a node does.
        let other = Place::new(place.store.clone());
        let again = other.add(place.downloaded(row.os_image_hash).await).await.unwrap();
        assert_eq!(again.os_image_hash, row.os_image_hash);
        assert_eq!(place.store.os_images().await.unwrap().len(), 1);
        assert!(place.library.download(OsImageHash::from_bytes([9; 32])).is_none());
    })
    .await;
}

#[tokio::test]
async fn retired_images_stay_while_a_cvm_has_them() {
    on_both(|store| async move {
        let place = Place::new(store);
        let ground = ground(&place.store).await;
        let files = image_files("0.1.0", false);
        let hash = place.add(archive(&files)).await.unwrap().os_image_hash;
        let wanted = async || place.store.os_images_for_node(ground.node).await.unwrap();
        assert_eq!(wanted().await, [hash]);

        let user = cvm(&place.store, &ground, 5, "my-app").await;
        let mut change = place.store.change().await.unwrap();
        let mut revision = user.configuration();
        revision.os_image_hash = hash;
        let new = crate::store::NewCvm {
            workspace_id: ground.workspace,
            user_id: ground.user,
            node_id: ground.node,
            vm_uuid: uuid::Uuid::from_bytes([6; 16]),
            name: "with-image".to_owned(),
            app_id: user.app_id,
            kms_id: None,
            listed: 0,
            configuration: revision,
        };
        let with_image = change.insert_cvm(&new, 0).await.unwrap();
        assert!(change.retire_os_image(hash, 5).await.unwrap());
        change.commit().await.unwrap();
        assert!(!place.library.forget(&place.store, hash).await.unwrap());
        assert_eq!((wanted().await, place.kept().len()), (vec![hash], 1), "its CVM may have to boot");

        let mut change = place.store.change().await.unwrap();
        let row = change.lock_cvm(with_image).await.unwrap().unwrap();
        change.delete_cvm(&row, 6).await.unwrap();
        change.commit().await.unwrap();
        assert!(wanted().await.is_empty());
        place.library.tidy(&place.store, &place.clock).await.unwrap();
        assert!(place.kept().is_empty() && place.store.os_images().await.unwrap().is_empty());
    })
    .await;
}

async fn alone() -> Place {
    let dir = tempfile::tempdir().unwrap().keep();
    Place::new(embedded(&dir).await)
}

#[tokio::test]
async fn what_is_no_image_leaves_nothing_behind() {
    let place = alone().await;
    let good = image_files("0.1.0", false);
    let changed = |name: &str, bytes: &[u8]| {
        let mut files = good.clone();
        files.iter_mut().find(|(other, _)| other == name).unwrap().1 = bytes.to_vec();
        archive(&files)
    };
    let with = |kind, name| {
        let mut members: Vec<_> =
            good.iter().map(|(name, bytes)| (EntryType::Regular, name.as_str(), bytes.as_slice())).collect();
        members.push((kind, name, b"".as_slice()));
        archive_of(&members)
    };
    let whole = archive(&good);
    for (case, bytes, words) in [
        ("another kernel", changed("vmlinuz", b"evil"), "vmlinuz does not match its hash"),
        ("no list", archive(&good[..6]), "sha256sum.txt is missing"),
        ("a file is missing", archive(&good[1..]), "bios.bin is missing"),
        ("an empty list", changed("sha256sum.txt", b""), "is not covered by the image's hash"),
        (
            "a path in the list",
            changed("sha256sum.txt", format!("{}  ../x\n", "0".repeat(64)).as_bytes()),
            "malformed",
        ),
        ("one file more", with(EntryType::Regular, "extra"), "extra is not covered"),
        ("a way out", with(EntryType::Regular, "../evil"), "no plain name"),
        ("a way from the root", with(EntryType::Regular, "/evil"), "no plain name"),
        ("a link", with(EntryType::Symlink, "link"), "something else than plain files"),
        ("a device", with(EntryType::Char, "null"), "something else than plain files"),
        ("a name twice", with(EntryType::Regular, "vmlinuz"), "a name occurs twice"),
        ("a part of a file", whole[..515].to_vec(), "broke off"),
        ("a launch that nobody would believe", archive(&with_another_kernel()), "the kernel is not the one"),
        (
            "a version that is none",
            archive(&image_files("1.x", false)),
            "no version of three or four numbers",
        ),
        ("nothing", Vec::new(), "sha256sum.txt is missing"),
        ("no archive", b"hello".repeat(300), "broke off or is no tar archive"),
    ] {
        let error = place.add(bytes).await.unwrap_err().to_string();
        assert!(error.contains(words), "{case}: {error}");
        assert!(place.kept().is_empty(), "{case}");
    }
    assert!(place.store.os_images().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_sender_that_fails_has_sent_nothing() {
    let place = alone().await;
    let whole = archive(&image_files("0.1.0", false));
    let broken = stream::iter([Ok(Bytes::from(whole)), Err(io::Error::from(io::ErrorKind::ConnectionReset))]);
    let error = place.library.add(&place.store, &place.clock, broken).await.unwrap_err();
    assert!(matches!(error, ImageError::Stream(_)), "{error}");
    assert!(place.kept().is_empty());
}

#[tokio::test]
async fn directories_of_an_operator_are_taken_up_at_the_start() {
    let place = alone().await;
    let root = place.dir.path().join("os-images");
    let files = image_files("0.2.0", true);
    for dir in ["mine", ".incoming-fresh", "broken"] {
        fs::create_dir(root.join(dir)).unwrap();
        for (name, bytes) in &files {
            fs::write(root.join(dir).join(name), bytes).unwrap();
        }
    }
    fs::write(root.join("broken/vmlinuz"), "evil").unwrap();
    place.library.tidy(&place.store, &place.clock).await.unwrap();
    let hash = hash_of(&files);
    // Another replica may be at work in the fresh one; what is broken is its owner's to look at.
    let mut expected = [".incoming-fresh".to_owned(), hash.to_string(), "broken".to_owned()];
    expected.sort();
    assert_eq!(place.kept(), expected);
    let row = place.store.os_image(hash).await.unwrap().unwrap();
    assert!(row.is_dev == 1 && row.is_offered());
}

#[tokio::test]
async fn a_full_catalogue_takes_nothing_and_starts_again() {
    let place = alone().await;
    let first = place.add(archive(&image_files("0.1.0", false))).await.unwrap();
    let mut change = place.store.change().await.unwrap();
    for seed in 1..MAX_IMAGES {
        let os_image_hash = OsImageHash::from_bytes([u8::try_from(seed).unwrap(); 32]);
        change.put_os_image(&OsImageRow { os_image_hash, ..first.clone() }).await.unwrap();
    }
    change.commit().await.unwrap();
    let files = image_files("0.2.0", false);
    let refused = place.add(archive(&files)).await;
    assert!(matches!(refused, Err(ImageError::TooMany)), "{refused:?}");
    assert_eq!(place.kept(), [first.os_image_hash.to_string()]);
    // One that is there already needs no room.
    place.add(archive(&image_files("0.1.0", false))).await.unwrap();

    let mine = place.dir.path().join("os-images/mine");
    fs::create_dir(&mine).unwrap();
    for (name, bytes) in &files {
        fs::write(mine.join(name), bytes).unwrap();
    }
    place.library.tidy(&place.store, &place.clock).await.unwrap();
    assert!(place.kept().contains(&"mine".to_owned()), "it is its owner's");
    assert!(place.store.os_image(hash_of(&files)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_node_that_fetches_nothing_keeps_nobody_from_an_image() {
    let mut place = alone().await;
    let mut files = image_files("0.1.0", false);
    files.retain(|(name, _)| name != CHECKSUMS);
    let (_, root) = files.iter_mut().find(|(name, _)| name == "rootfs.erofs").unwrap();
    *root = vec![7; 4 << 20];
    seal(&mut files);
    let hash = place.add(archive(&files)).await.unwrap().os_image_hash;
    place.library.patience = Duration::ZERO;
    let mut idle: Vec<_> = (0..MAX_DOWNLOADS).filter_map(|_| place.library.download(hash)).collect();
    // Each gives its turn back, though nobody fetched a byte or went away.
    let all = u32::try_from(MAX_DOWNLOADS).unwrap();
    drop(place.library.downloads.acquire_many(all).await.unwrap());
    place.library.patience = PATIENCE;
    assert!(place.downloaded(hash).await.len() > 4 << 20);
    let part: Vec<_> = idle.remove(0).collect().await;
    assert!(matches!(part.as_slice(), [Ok(_), .., Err(_)]), "a part is not taken for the whole");
}
