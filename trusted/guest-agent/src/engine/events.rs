//! What the engine writes down of what happens to containers.
//!
//! Its own stream of events (`/events`) follows the same file, and now and then reads a line that is only half
//! written yet; podman 5.4 falls over then, in the middle of whatever else it does. So the agent reads the file
//! itself, which costs the engine nothing.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::fs::inotify;
use serde::Deserialize;
use tokio::sync::Notify;

/// The file; `images/rootfs/etc/containers/containers.conf` says the same.
pub(super) const FILE: &str = "/run/cloister/engine/events.log";
/// Most bytes of the file that are read at a time. The engine keeps the file below 1 MB; of what is longer only
/// that it changed is known.
const MAX_READ_BYTES: u64 = 2 << 20;

/// Events after which a container may do otherwise than before. Others come with every health check and program
/// that is run in a container.
const CHANGES: [&str; 6] = ["create", "died", "pause", "unpause", "restart", "remove"];
const STARTED: &str = "start";

/// A line of the file, in podman's words.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    status: String,
    #[serde(rename = "Type")]
    kind: String,
}

/// What is new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct News {
    /// A container began to run.
    pub(super) started: bool,
    /// A container may do otherwise than before.
    pub(super) changed: bool,
}

impl News {
    /// More may have happened than is known.
    const ANY: Self = Self { started: true, changed: true };

    fn add(&mut self, line: &[u8]) {
        match serde_json::from_slice::<Event>(line) {
            Ok(event) if event.kind != "container" => {}
            Ok(event) if event.status == STARTED => *self = Self::ANY,
            Ok(event) => self.changed |= CHANGES.contains(&event.status.as_str()),
            Err(_) => *self = Self::ANY,
        }
    }
}

/// Follows the file, which need not exist yet.
#[derive(Debug)]
pub(super) struct Events {
    file: PathBuf,
    /// Begin of the first line that was not read yet.
    offset: u64,
    /// Something happened in the file's directory.
    woken: Arc<Notify>,
}

impl Events {
    /// Makes the file's directory and listens for changes from now on.
    pub(super) fn follow(file: &Path) -> io::Result<Self> {
        let directory = file.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
        let what = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, directory, what)?;
        let offset = fs::metadata(file).map_or(0, |file| file.len());
        let woken = Arc::new(Notify::new());
        let listener = Arc::downgrade(&woken);
        thread::spawn(move || {
            let mut notes = [0; 4096];
            while rustix::io::retry_on_intr(|| rustix::io::read(&watch, &mut notes)).is_ok() {
                let Some(woken) = listener.upgrade() else { return };
                woken.notify_one();
            }
        });
        Ok(Self { file: file.to_owned(), offset, woken })
    }

    /// Waits for news.
    pub(super) async fn next(&mut self) -> io::Result<News> {
        loop {
            self.woken.notified().await;
            let news = self.read()?;
            if news != News::default() {
                return Ok(news);
            }
        }
    }

    /// Reads the lines that were finished since. A file that became shorter is a new one, which holds the last
    /// part of the old one.
    fn read(&mut self) -> io::Result<News> {
        let mut file = match File::open(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(News::default()),
            file => file?,
        };
        let length = file.metadata()?.len();
        if length < self.offset || length - self.offset > MAX_READ_BYTES {
            self.offset = length;
            return Ok(News::ANY);
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
        let mut news = News::default();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // The rest of this one is still to be written.
            let Some(line) = line.strip_suffix(b"\n") else { break };
            news.add(line);
            self.offset += line.len() as u64 + 1;
        }
        Ok(news)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn event(kind: &str, status: &str) -> String {
        format!("{{\"ID\":\"1f\",\"Name\":\"web\",\"Status\":\"{status}\",\"Type\":\"{kind}\"}}\n")
    }

    fn append(file: &Path, text: &str) {
        File::options().append(true).create(true).open(file).unwrap().write_all(text.as_bytes()).unwrap();
    }

    const CHANGED: News = News { started: false, changed: true };

    #[tokio::test]
    async fn tells_what_was_written_since_and_waits_for_the_end_of_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("engine/events.log");
        let mut events = Events::follow(&file).unwrap();
        append(&file, &event("container", "start"));
        assert_eq!(events.next().await.unwrap(), News::ANY);
        append(
            &file,
            &(event("container", "exec") + &event("image", "remove") + &event("container", "died")),
        );
        assert_eq!(events.next().await.unwrap(), CHANGED);

        let whole = event("container", "pause");
        let (half, rest) = whole.split_at(20);
        append(&file, half);
        assert_eq!(events.read().unwrap(), News::default());
        append(&file, rest);
        assert_eq!(events.next().await.unwrap(), CHANGED);
    }

    #[tokio::test]
    async fn a_file_that_was_replaced_or_makes_no_sense_may_mean_anything() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("events.log");
        append(&file, &event("container", "start").repeat(3));
        let mut events = Events::follow(&file).unwrap();
        assert_eq!(events.read().unwrap(), News::default(), "what is older is no news");
        let new = directory.path().join("new");
        append(&new, &event("container", "exec"));
        fs::rename(new, &file).unwrap();
        assert_eq!(events.next().await.unwrap(), News::ANY);
        append(&file, &event("container", "remove"));
        assert_eq!(events.next().await.unwrap(), CHANGED);
        append(&file, "nonsense\n");
        assert_eq!(events.next().await.unwrap(), News::ANY);
    }

    proptest! {
        #[test]
        fn however_lines_arrive_each_is_read_once(
            statuses in proptest::collection::vec(proptest::sample::select(vec!["start", "died", "exec"]), 1..6),
            chunk in 1usize..60,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("events.log");
            let mut events = Events::follow(&file).unwrap();
            let text: String = statuses.iter().map(|status| event("container", status)).collect();
            let (mut started, mut changed) = (false, false);
            for piece in text.as_bytes().chunks(chunk) {
                append(&file, std::str::from_utf8(piece).unwrap());
                let news = events.read().unwrap();
                started |= news.started;
                changed |= news.changed;
            }
            prop_assert_eq!(started, statuses.contains(&"start"));
            prop_assert_eq!(changed, statuses.iter().any(|status| *status != "exec"));
            prop_assert_eq!(events.read().unwrap(), News::default());
        }
    }
}
