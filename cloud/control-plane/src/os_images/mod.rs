//! Guest images of the installation's catalogue: taken from the operator, checked, kept by hash below the data
//! directory, and given to nodes.
//!
//! An image is a directory of plain files with `sha256sum.txt`; the SHA-256 of that file is the image's hash.
//! It is made in a directory that nobody looks into and moved when it is whole and right. The row in the
//! database comes last: a directory without one is taken up, or removed, at the next start. Replicas of the
//! control plane share one database, so they must share this directory, too.

mod download;
mod feed;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cloister_app_compose::OsImageHash;
use cloister_guest_image::{ArchiveError, CheckError, CheckedImage, Limits, Others, is_plain, unpack};
use futures_util::Stream;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use self::download::MAX_DOWNLOADS;
use crate::clock::{Clock, Random};
use crate::store::{OsImageRow, Store, StoreError};

/// Most images that the catalogue offers; nodes offer no more either.
pub const MAX_IMAGES: i64 = 64;
/// Begins the names of directories in which images are made.
const STAGING_PREFIX: &str = ".incoming-";
/// A sender, or a node, that pauses for longer is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Far longer than an image takes to come in.
const ABANDONED_AFTER: Duration = Duration::from_hours(24);

/// Why an image was not added.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The sender stopped, or sent no archive.
    #[error("the archive broke off or is no tar archive; send it again")]
    Stream(#[source] io::Error),
    /// Not a guest image.
    #[error("the archive is refused: {0}")]
    Refused(String),
    /// More than an image has.
    #[error("the archive has more or larger files than a guest image: at most 32 files of 8 GiB together")]
    TooLarge,
    /// The catalogue is full.
    #[error("the catalogue offers {MAX_IMAGES} images already; retire one first")]
    TooMany,
    /// The disk is full or fails.
    #[error("the image cannot be stored; check the control plane's disk")]
    Disk(#[source] io::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ArchiveError> for ImageError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Stream(source) => Self::Stream(source),
            ArchiveError::Refused(why) => Self::Refused(why.to_owned()),
            ArchiveError::TooLarge => Self::TooLarge,
            ArchiveError::NoRoom => Self::Disk(io::ErrorKind::StorageFull.into()),
            ArchiveError::Disk(source) => Self::Disk(source),
        }
    }
}

impl From<CheckError> for ImageError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Io { source, .. } => Self::Disk(source),
            refusal => Self::Refused(refusal.to_string()),
        }
    }
}

/// The images of the catalogue on disk.
pub struct Library {
    dir: PathBuf,
    downloads: Arc<Semaphore>,
    /// How long a node may fetch nothing.
    patience: Duration,
    /// One image comes in at a time.
    intake: Semaphore,
}

impl Library {
    /// The library in a directory, which is made when absent.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let downloads = Arc::new(Semaphore::new(MAX_DOWNLOADS));
        Ok(Self { dir, downloads, patience: PATIENCE, intake: Semaphore::new(1) })
    }

    /// Takes up images whose directories an operator put here, forgets retired ones that nobody has, and removes
    /// what a crash left.
    pub async fn tidy(&self, store: &Store, clock: &Clock) -> Result<(), ImageError> {
        let known = store.os_images().await?;
        for image in known.iter().filter(|image| !image.is_offered()) {
            self.forget(store, image.os_image_hash).await?;
        }
        for dir in self.directories()? {
            let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if name.starts_with(STAGING_PREFIX) {
                if is_abandoned(&dir) {
                    remove(&dir).map_err(ImageError::Disk)?;
                }
            } else if !known.iter().any(|image| image.os_image_hash.to_string() == name) {
                self.take_up(store, clock, dir).await?;
            }
        }
        Ok(())
    }

    fn directories(&self) -> Result<Vec<PathBuf>, ImageError> {
        let entries = fs::read_dir(&self.dir).map_err(ImageError::Disk)?;
        Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
    }

    async fn take_up(&self, store: &Store, clock: &Clock, dir: PathBuf) -> Result<(), ImageError> {
        let checked = blocking({
            let dir = dir.clone();
            move || check(&dir)
        })
        .await;
        match checked {
            Ok(image) => match self.offer(store, clock, &image, &dir).await {
                Err(error @ ImageError::TooMany) => {
                    warn!(directory = %dir.display(), %error, "left an image out of the catalogue");
                    Ok(())
                }
                outcome => outcome.map(|_| ()),
            },
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(directory = %dir.display(), error, "left a directory that is no guest image out of the catalogue");
                Ok(())
            }
        }
    }

    /// Adds the image that a tar stream brings; one that is known already is checked and offered again.
    pub async fn add<S, E>(&self, store: &Store, clock: &Clock, archive: S) -> Result<OsImageRow, ImageError>
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
    {
        let _turn = self.intake.acquire().await;
        let name = Random.uuid().map_err(|error| ImageError::Disk(io::Error::other(error)))?;
        let staging = Staging(self.dir.join(format!("{STAGING_PREFIX}{name}")));
        staging.create().map_err(ImageError::Disk)?;
        let (pump, reader) = feed::pair();
        let dir = staging.0.clone();
        let work = blocking(move || {
            unpack(reader, &dir, Limits::USUAL, || Ok(true))?;
            check(&dir)
        });
        // A pump that gives up ends the work as well.
        let ((), image) = tokio::join!(pump.run(archive, PATIENCE), work);
        let image = image?;
        self.offer(store, clock, &image, &staging.0).await
    }

    /// Puts a checked image into its place and into the catalogue, if there is room.
    async fn offer(
        &self,
        store: &Store,
        clock: &Clock,
        image: &CheckedImage,
        dir: &Path,
    ) -> Result<OsImageRow, ImageError> {
        let row = OsImageRow {
            os_image_hash: image.hash,
            name: image.metadata.name.clone(),
            version: image.metadata.version.clone(),
            is_dev: i64::from(image.metadata.is_dev),
            supports_gpu: i64::from(image.metadata.supports_gpu),
            size_bytes: i64::try_from(image.size_bytes).unwrap_or(i64::MAX),
            added_at_ms: clock.now_ms(),
            retired_at_ms: None,
            cvm_count: 0,
        };
        let mut change = store.change().await?;
        if change.count_other_os_images(image.hash).await? >= MAX_IMAGES {
            return Err(ImageError::TooMany);
        }
        change.put_os_image(&row).await?;
        // While the row is held, so that nobody forgets the image between its files and its row.
        let target = self.dir.join(image.hash.to_string());
        if target != dir {
            replace(dir, &target).map_err(ImageError::Disk)?;
        }
        change.commit().await?;
        info!(name = row.name, hash = %row.os_image_hash, "a guest image is in the catalogue");
        Ok(store.os_image(image.hash).await?.unwrap_or(row))
    }

    /// Forgets a retired image and its files, unless a living CVM has it; whether it was forgotten.
    pub async fn forget(&self, store: &Store, hash: OsImageHash) -> Result<bool, ImageError> {
        let mut change = store.change().await?;
        let forgotten = change.forget_os_image(hash).await?;
        // Its files lose their name before the row goes: without a row they would be offered again at the next
        // start.
        let nameless = Staging(self.dir.join(format!("{STAGING_PREFIX}{hash}")));
        if forgotten {
            nameless.take(&self.dir.join(hash.to_string())).map_err(ImageError::Disk)?;
        }
        change.commit().await?;
        Ok(forgotten)
    }
}

/// An image that the catalogue can name: what [`CheckedImage::check`] wants, and a name and a version to choose by.
fn check(dir: &Path) -> Result<CheckedImage, ImageError> {
    let image = CheckedImage::check(dir, None, Others::Refused)?;
    let (name, version) = (&image.metadata.name, &image.metadata.version);
    if is_plain(name) && is_version(version) {
        return Ok(image);
    }
    let why = "metadata.json has no plain name, or no version of three or four numbers";
    Err(ImageError::Refused(why.to_owned()))
}

fn is_version(text: &str) -> bool {
    let numbers: Vec<_> = text.split('.').map(str::parse::<u32>).collect();
    (3..=4).contains(&numbers.len()) && numbers.iter().all(Result::is_ok)
}

/// A directory that is removed unless it was moved away.
struct Staging(PathBuf);

impl Staging {
    fn create(&self) -> io::Result<()> {
        remove(&self.0)?;
        DirBuilder::new().mode(0o700).create(&self.0)
    }

    /// Takes a directory over, if there is one.
    fn take(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() { replace(dir, &self.0) } else { Ok(()) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the next start.
        let _ = remove(&self.0);
    }
}

/// Whether nobody can be at work in a directory any more; another replica of the control plane may be.
fn is_abandoned(dir: &Path) -> bool {
    let age = fs::metadata(dir).and_then(|data| data.modified()).map(|changed| changed.elapsed());
    matches!(age, Ok(Ok(age)) if age > ABANDONED_AFTER)
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Moves a directory to its final name, over what is there.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    remove(to)?;
    fs::rename(from, to)?;
    match to.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(ImageError::Disk(io::Error::other(error))),
    }
}
