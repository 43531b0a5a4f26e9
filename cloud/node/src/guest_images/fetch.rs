//! Guest images that the catalogue has and this node lacks: fetched from the control plane, one at a time.
//!
//! What comes is trusted for nothing: it must have the very hash that was asked for, and pass the check that
//! an operator's own images pass. It is made in a directory that nobody looks into, and moved when it is
//! whole; what a crash leaves of it is removed at the next start.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::OsImageHash;
use cloister_guest_image::{ArchiveError, CheckError, CheckedImage, DIGEST, Limits, Others, unpack};
use cloister_node_api::{NodeImage, paths};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{GuestImages, MAX_ENTRIES};
use crate::clock;
use crate::control_plane::{CallError, ControlPlaneClient};
use crate::files;
use crate::host::has_free_disk;
use crate::images::feed;
use crate::vms::blocking;

/// Begins the name of a directory in which an image is made.
const STAGING_PREFIX: &str = ".fetching-";
/// Longest pause within a stream, and longest time for a whole image.
const PATIENCE: Duration = Duration::from_secs(30);
const WHOLE_LIMIT: Duration = Duration::from_hours(1);
/// Pause after a failure; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Why an image was not fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("what came is no guest image, or another one")]
    Broken(#[from] CheckError),
    #[error("it was fetched and is not offered; look at the node's directories of guest images")]
    NotOffered,
    #[error("it cannot be stored")]
    Disk(#[source] io::Error),
}

impl FetchError {
    /// Whether the same will come again: the catalogue has something else under this hash.
    const fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Archive(ArchiveError::Refused(_) | ArchiveError::TooLarge)
                | Self::Broken(_)
                | Self::NotOffered
        )
    }
}

/// Fetches what is missing.
pub(crate) struct Fetcher {
    pub(crate) client: ControlPlaneClient,
    pub(crate) images: Arc<GuestImages>,
    /// Where fetched images are kept; one of the directories of `images`.
    pub(crate) dir: PathBuf,
    /// What the control plane wants here.
    pub(crate) wanted: watch::Receiver<Vec<OsImageHash>>,
    /// What the node offers.
    pub(crate) offered: watch::Receiver<Vec<NodeImage>>,
    /// Told when there is a new image.
    pub(crate) arrived: Arc<Notify>,
}

/// The failures of one image.
#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    not_before: Instant,
}

impl Fetcher {
    /// Removes what an earlier life left unfinished in `dir`.
    pub(crate) fn clean(dir: &Path) -> io::Result<()> {
        files::make_dir(dir)?;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(STAGING_PREFIX) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Fetches for ever.
    pub(crate) async fn run(mut self) {
        let mut failures = HashMap::new();
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            self.offered.mark_unchanged();
            failures.retain(|hash, _| wanted.contains(hash));
            let missing = self.missing(wanted).await;
            let due = |hash: &OsImageHash| {
                failures.get(hash).map_or_else(Instant::now, |failures: &Failures| failures.not_before)
            };
            match missing.iter().copied().min_by_key(due) {
                Some(hash) if due(&hash) <= Instant::now() => self.attempt(hash, &mut failures).await,
                next => {
                    let next_is_due = async {
                        match next {
                            Some(hash) => tokio::time::sleep_until(due(&hash)).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = next_is_due => {}
                        Ok(()) = self.wanted.changed() => {}
                        Ok(()) = self.offered.changed() => {}
                        else => return,
                    }
                }
            }
        }
    }

    async fn missing(&self, wanted: Vec<OsImageHash>) -> Vec<OsImageHash> {
        let images = Arc::clone(&self.images);
        let missing = move || {
            let is_missing = |hash: &OsImageHash| images.find(*hash).is_none();
            Ok::<_, std::convert::Infallible>(wanted.into_iter().filter(is_missing).collect())
        };
        blocking(missing).await.unwrap_or_default()
    }

    async fn attempt(&self, hash: OsImageHash, failures: &mut HashMap<OsImageHash, Failures>) {
        match self.fetch(hash).await {
            Ok(()) => {
                tracing::info!(%hash, "fetched a guest image of the catalogue");
                failures.remove(&hash);
                self.arrived.notify_one();
            }
            Err(error) => {
                let count = failures.get(&hash).map_or(0, |failures| failures.count);
                let pause = FIRST_PAUSE * 2u32.saturating_pow(count.min(16));
                let pause = if error.is_lasting() { LONGEST_PAUSE } else { pause.min(LONGEST_PAUSE) };
                note(hash, count, &error);
                let not_before = Instant::now() + clock::jittered(pause);
                failures.insert(hash, Failures { count: count.saturating_add(1), not_before });
            }
        }
    }

    async fn fetch(&self, hash: OsImageHash) -> Result<(), FetchError> {
        let stream = self.client.download(&format!("{}/{hash}", paths::OS_IMAGES)).await?;
        let (pump, feed) = feed::pair();
        let (dir, wanted) = (self.dir.clone(), self.wanted.borrow().clone());
        let work = blocking(move || {
            make_room(&dir, &wanted).map_err(FetchError::Disk)?;
            place(feed, &dir, hash)
        });
        // A pump that is dropped ends the work as well.
        let (_, placed) = tokio::join!(tokio::time::timeout(WHOLE_LIMIT, pump.run(stream, PATIENCE)), work);
        placed?;
        // Checked again where it is now: only that is offered.
        if self.missing(vec![hash]).await.is_empty() { Ok(()) } else { Err(FetchError::NotOffered) }
    }
}

/// One line per image that cannot be had, not one per attempt.
fn note(hash: OsImageHash, count: u32, error: &FetchError) {
    let lasting = error.is_lasting();
    let error = error as &dyn std::error::Error;
    match (count, lasting) {
        (0, true) => tracing::error!(%hash, error, "refused a guest image that the control plane sent"),
        (0, false) => tracing::warn!(%hash, error, "cannot fetch a guest image; trying again until it works"),
        _ => tracing::debug!(%hash, count, error, "still cannot fetch a guest image"),
    }
}

/// Makes room for one more image where nobody looks at more than [`MAX_ENTRIES`]: what is not wanted any more
/// goes, the oldest first. A VM that runs with one keeps its files open. Blocks.
fn make_room(dir: &Path, wanted: &[OsImageHash]) -> io::Result<()> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let hash = entry.file_name().to_str().and_then(|name| name.parse::<OsImageHash>().ok());
        if let Some(hash) = hash {
            kept.push((entry.metadata()?.modified()?, hash));
        }
    }
    kept.sort_by_key(|(modified, _)| *modified);
    let excess = (kept.len() + 1).saturating_sub(MAX_ENTRIES);
    let unwanted = kept.iter().map(|(_, hash)| hash).filter(|hash| !wanted.contains(hash));
    for hash in unwanted.take(excess) {
        tracing::info!(%hash, "removing a guest image that is not wanted any more, for another one");
        fs::remove_dir_all(dir.join(hash.to_string()))?;
    }
    Ok(())
}

/// Makes an image of a stream, or leaves nothing behind. Blocks.
fn place(stream: impl Read, dir: &Path, hash: OsImageHash) -> Result<(), FetchError> {
    let staging = Staging::create(dir.join(format!("{STAGING_PREFIX}{hash}"))).map_err(FetchError::Disk)?;
    unpack(stream, &staging.0, Limits::USUAL, || has_free_disk(dir))?;
    CheckedImage::check(&staging.0, Some(hash), Others::Refused)?;
    files::write(&staging.0.join(DIGEST), hash.to_string().as_bytes()).map_err(FetchError::Disk)?;
    let target = dir.join(hash.to_string());
    // One that is there did not pass the check any more.
    match fs::remove_dir_all(&target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(FetchError::Disk(error)),
        _ => {}
    }
    fs::rename(&staging.0, &target).and_then(|()| files::sync_parent(&target)).map_err(FetchError::Disk)
}

/// A directory that is removed unless it was moved away.
struct Staging(PathBuf);

impl Staging {
    fn create(path: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        files::make_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the next start.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn when_there_is_no_room_the_oldest_that_nobody_wants_goes() {
        let dir = tempfile::tempdir().unwrap();
        let hash = |number: usize| OsImageHash::from_bytes([u8::try_from(number).unwrap(); 32]);
        let path = |number: usize| dir.path().join(hash(number).to_string());
        let keep = |number: usize| {
            fs::create_dir(path(number)).unwrap();
            let made_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - number as u64);
            fs::File::open(path(number)).unwrap().set_modified(made_at).unwrap();
        };
        fs::create_dir(dir.path().join("of the operator")).unwrap();
        (1..MAX_ENTRIES).for_each(keep);
        let (oldest, second) = (MAX_ENTRIES, MAX_ENTRIES - 1);
        make_room(dir.path(), &[]).unwrap();
        assert!(path(second).exists(), "there is room for one more");
        keep(oldest);
        make_room(dir.path(), &[hash(oldest)]).unwrap();
        let left: Vec<_> = (1..=oldest).filter(|number| path(*number).exists()).collect();
        assert!(left.len() == MAX_ENTRIES - 1 && !left.contains(&second), "{left:?}");
        let all: Vec<_> = (1..=oldest).map(hash).collect();
        keep(second);
        make_room(dir.path(), &all).unwrap();
        assert!(path(second).exists(), "what is wanted stays");
    }
}
