use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use cloister_node_api::ImportedImage;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;
use tokio_util::task::TaskTracker;

use super::archive::unpack;
use super::assemble::{Assembled, assemble};
use super::staging::{Staging, sync};
use super::{Digest, ImageError, Limits, Reference, feed};
use crate::files::Lock;

impl Limits {
    /// Whether a workspace with the images `owned` may have another one, or a new one of the same name.
    fn check(&self, owned: &BTreeMap<Reference, Record>, new: &Record) -> Result<(), ImageError> {
        let others = || owned.values().filter(|image| image.reference != new.reference);
        if others().count() >= self.images_per_workspace {
            return Err(ImageError::TooManyImages(owned.len()));
        }
        let blobs: BTreeMap<_, _> = others().chain([new]).flat_map(|image| &image.blobs).collect();
        if blobs.into_values().sum::<u64>() > self.workspace_bytes {
            return Err(ImageError::WorkspaceFull(self.workspace_bytes));
        }
        Ok(())
    }
}

/// The image store of a node. Clones share it.
#[derive(Clone)]
pub struct AppImages(Arc<Store>);

/// A store that closes when its owners drop it, whoever still serves from it.
#[derive(Clone)]
pub(super) struct WeakImages(Weak<Store>);

impl WeakImages {
    pub(super) fn upgrade(&self) -> Option<AppImages> {
        self.0.upgrade().map(AppImages)
    }
}

struct Store {
    dir: PathBuf,
    limits: Limits,
    images: RwLock<HashMap<i64, BTreeMap<Reference, Record>>>,
    importing: Mutex<HashMap<i64, usize>>,
    next_staging: AtomicU64,
    /// What works on files.
    tasks: TaskTracker,
    _lock: Lock,
}

/// One image of a workspace, as kept on disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    reference: Reference,
    digest: Digest,
    manifests: BTreeMap<Digest, String>,
    blobs: BTreeMap<Digest, u64>,
}

/// A manifest as the mirror serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredManifest {
    pub(super) digest: Digest,
    pub(super) media_type: String,
}

impl Record {
    fn describe(&self) -> ImportedImage {
        ImportedImage {
            reference: self.reference.to_string(),
            digest: self.digest.to_string(),
            size: self.blobs.values().sum(),
        }
    }
}

impl AppImages {
    /// Opens or creates the store in a directory, removes what a crash left behind and fails with
    /// [`ImageError::InUse`] when another process has it open.
    pub fn open(dir: &Path, limits: Limits) -> Result<Self, ImageError> {
        make_dir(dir)?;
        let lock = Lock::take(&dir.join("lock")).map_err(ImageError::disk)?.ok_or(ImageError::InUse)?;
        let staging = dir.join("staging");
        match fs::remove_dir_all(&staging) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(ImageError::disk(error)),
            _ => {}
        }
        [staging, dir.join("blobs"), dir.join("records")].iter().try_for_each(|dir| make_dir(dir))?;
        let store = Store {
            dir: dir.to_owned(),
            limits,
            images: RwLock::new(load_records(dir)?),
            importing: Mutex::default(),
            next_staging: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            _lock: lock,
        };
        store.collect_garbage()?;
        Ok(Self(Arc::new(store)))
    }

    /// Takes an archive made by `docker save` or `podman save`, or of an OCI layout, plain or
    /// gzip-compressed. Without a reference the archive must name exactly one image. An image with the
    /// same reference is replaced. When this returns, the image survives a crash.
    pub async fn import(
        &self,
        workspace: i64,
        reference: Option<&str>,
        archive: impl AsyncRead + Unpin,
    ) -> Result<ImportedImage, ImageError> {
        let reference = reference.map(str::parse).transpose()?;
        let ticket = self.0.clone().begin(workspace)?;
        let (pump, feed) = feed::pair();
        let patience = self.0.limits.upload_pause;
        let work = self.0.tasks.spawn_blocking(move || ticket.store.import(workspace, reference, feed));
        let ((), result) = tokio::join!(pump.run(archive, patience), work);
        result.map_err(|stopped| ImageError::Disk(io::Error::other(stopped)))?
    }

    /// The images of a workspace by reference.
    #[must_use]
    pub fn list(&self, workspace: i64) -> Vec<ImportedImage> {
        self.0.with_images(workspace, |images| images.values().map(Record::describe).collect())
    }

    /// Removes an image; tells whether there was one. CVMs that are reading it right now finish.
    pub async fn delete(&self, workspace: i64, reference: &str) -> Result<bool, ImageError> {
        let (store, reference) = (self.0.clone(), reference.parse()?);
        let work = self.0.tasks.spawn_blocking(move || store.delete(workspace, &reference));
        work.await.map_err(|stopped| ImageError::Disk(io::Error::other(stopped)))?
    }

    /// Waits until nothing works on files any more, which goes on for a moment when who wanted it has gone.
    pub(crate) async fn ended(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub(super) fn downgrade(&self) -> WeakImages {
        WeakImages(Arc::downgrade(&self.0))
    }

    /// The manifest that `registry/repository` has under a tag or digest.
    pub(super) fn manifest(&self, workspace: i64, name: &str, wanted: &str) -> Option<StoredManifest> {
        let digest: Option<Digest> = wanted.parse().ok();
        self.0.with_images(workspace, |images| {
            images.values().filter(|image| image.reference.name() == name).find_map(|image| {
                let is_tag = image.reference.tag() == wanted;
                let digest = digest.or_else(|| is_tag.then_some(image.digest))?;
                let media_type = image.manifests.get(&digest)?.clone();
                Some(StoredManifest { digest, media_type })
            })
        })
    }

    /// The file of a blob that belongs to an image of the workspace, and its size.
    pub(super) fn blob(&self, workspace: i64, digest: &Digest) -> Option<(PathBuf, u64)> {
        let size = self.0.with_images(workspace, |images| {
            images.values().find_map(|image| image.blobs.get(digest).copied())
        })?;
        Some((self.0.blob_path(digest), size))
    }

    /// Every `registry/repository` of a workspace.
    pub(super) fn names(&self, workspace: i64) -> BTreeSet<String> {
        self.0.with_images(workspace, |images| {
            images.keys().map(|reference| reference.name().to_owned()).collect()
        })
    }
}

/// One of a workspace's places for imports; given back when dropped.
struct Ticket {
    store: Arc<Store>,
    workspace: i64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut importing = self.store.importing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = importing.get_mut(&self.workspace) {
            *count -= 1;
            if *count == 0 {
                importing.remove(&self.workspace);
            }
        }
    }
}

impl Store {
    fn begin(self: Arc<Self>, workspace: i64) -> Result<Ticket, ImageError> {
        let limit = self.limits.imports_per_workspace;
        let mut importing = self.importing.lock().unwrap_or_else(PoisonError::into_inner);
        let count = importing.entry(workspace).or_default();
        if *count >= limit {
            return Err(ImageError::Busy(limit));
        }
        *count += 1;
        drop(importing);
        Ok(Ticket { store: self, workspace })
    }

    fn import(
        &self,
        workspace: i64,
        reference: Option<Reference>,
        archive: impl io::Read,
    ) -> Result<ImportedImage, ImageError> {
        let number = self.next_staging.fetch_add(1, Ordering::Relaxed);
        let mut staging =
            Staging::create(self.dir.join("staging").join(number.to_string()), self.limits.disk_reserve)?;
        let contents = unpack(archive, &mut staging, &self.limits)?;
        let image = assemble(&contents, &mut staging, reference, &self.limits)?;
        // The slow part of making it durable happens before anybody has to wait for it.
        for digest in image.blobs.keys() {
            sync(&staging.path(digest))?;
        }
        self.commit(workspace, image, &staging)
    }

    fn commit(
        &self,
        workspace: i64,
        image: Assembled,
        staging: &Staging,
    ) -> Result<ImportedImage, ImageError> {
        let Assembled { reference, root, manifests, blobs } = image;
        let record = Record { reference, digest: root, manifests, blobs };
        let described = record.describe();
        let mut images = self.images.write().unwrap_or_else(PoisonError::into_inner);
        self.limits.check(images.entry(workspace).or_default(), &record)?;
        if let Err(error) = self.keep(workspace, &record, staging) {
            self.sweep(&images, Some(&record));
            return Err(error);
        }
        let replaced = images.entry(workspace).or_default().insert(record.reference.clone(), record);
        self.sweep(&images, replaced.as_ref());
        Ok(described)
    }

    fn keep(&self, workspace: i64, record: &Record, staging: &Staging) -> Result<(), ImageError> {
        for digest in record.blobs.keys() {
            fs::rename(staging.path(digest), self.blob_path(digest)).map_err(ImageError::disk)?;
        }
        sync(&self.dir.join("blobs"))?;
        write_record(&self.workspace_dir(workspace), record)
    }

    fn delete(&self, workspace: i64, reference: &Reference) -> Result<bool, ImageError> {
        let mut images = self.images.write().unwrap_or_else(PoisonError::into_inner);
        let Some(owned) = images.get_mut(&workspace).filter(|owned| owned.contains_key(reference)) else {
            return Ok(false);
        };
        let dir = self.workspace_dir(workspace);
        fs::remove_file(dir.join(record_name(reference))).map_err(ImageError::disk)?;
        sync(&dir)?;
        let removed = owned.remove(reference);
        self.sweep(&images, removed.as_ref());
        Ok(true)
    }

    /// Removes the blobs of a former image that no other one uses. What fails is collected at start.
    fn sweep(&self, images: &HashMap<i64, BTreeMap<Reference, Record>>, former: Option<&Record>) {
        let is_used =
            |digest| images.values().flat_map(BTreeMap::values).any(|image| image.blobs.contains_key(digest));
        for digest in
            former.into_iter().flat_map(|image| image.blobs.keys()).filter(|digest| !is_used(digest))
        {
            match fs::remove_file(self.blob_path(digest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%digest, %error, "cannot remove a blob that no image uses");
                }
                _ => {}
            }
        }
    }

    fn collect_garbage(&self) -> Result<(), ImageError> {
        let images = self.images.read().unwrap_or_else(PoisonError::into_inner);
        let used: BTreeSet<String> = images
            .values()
            .flat_map(BTreeMap::values)
            .flat_map(|image| image.blobs.keys())
            .map(Digest::hex)
            .collect();
        for entry in fs::read_dir(self.dir.join("blobs")).map_err(ImageError::disk)? {
            let entry = entry.map_err(ImageError::disk)?;
            if entry.file_name().to_str().is_none_or(|name| !used.contains(name)) {
                fs::remove_file(entry.path()).map_err(ImageError::disk)?;
            }
        }
        Ok(())
    }

    fn with_images<T: Default>(
        &self,
        workspace: i64,
        read: impl FnOnce(&BTreeMap<Reference, Record>) -> T,
    ) -> T {
        let images = self.images.read().unwrap_or_else(PoisonError::into_inner);
        images.get(&workspace).map(read).unwrap_or_default()
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.dir.join("blobs").join(digest.hex())
    }

    fn workspace_dir(&self, workspace: i64) -> PathBuf {
        self.dir.join("records").join(workspace.to_string())
    }
}

fn make_dir(dir: &Path) -> Result<(), ImageError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(ImageError::disk)
}

/// References hold characters that file names do not, and can be longer.
fn record_name(reference: &Reference) -> String {
    format!("{}.json", Digest::of(reference.to_string().as_bytes()).hex())
}

fn write_record(dir: &Path, record: &Record) -> Result<(), ImageError> {
    let write = || {
        fs::create_dir_all(dir)?;
        let path = dir.join(record_name(&record.reference));
        let temporary = path.with_extension("new");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(temporary, path)
    };
    write().map_err(ImageError::disk)?;
    sync(dir)?;
    dir.parent().map_or(Ok(()), sync)
}

fn load_records(dir: &Path) -> Result<HashMap<i64, BTreeMap<Reference, Record>>, ImageError> {
    let mut images: HashMap<i64, BTreeMap<Reference, Record>> = HashMap::new();
    for workspace in fs::read_dir(dir.join("records")).map_err(ImageError::disk)? {
        let workspace = workspace.map_err(ImageError::disk)?;
        let Some(id) = workspace.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        for entry in fs::read_dir(workspace.path()).map_err(ImageError::disk)? {
            let path = entry.map_err(ImageError::disk)?.path();
            if let Some(record) = load_record(dir, &path) {
                images.entry(id).or_default().insert(record.reference.clone(), record);
            } else {
                tracing::warn!(path = %path.display(), "leaving out an image whose record or blobs are damaged");
            }
        }
    }
    Ok(images)
}

/// A record that is what its name says and whose blobs are all there.
fn load_record(dir: &Path, path: &Path) -> Option<Record> {
    let record: Record = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let is_named = path.file_name()?.to_str()? == record_name(&record.reference);
    let has = |(digest, size): (&Digest, &u64)| {
        fs::metadata(dir.join("blobs").join(digest.hex())).is_ok_and(|found| found.len() == *size)
    };
    (is_named && record.blobs.iter().all(has)).then_some(record)
}
