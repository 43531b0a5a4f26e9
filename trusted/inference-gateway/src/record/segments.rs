//! The files of the journal: segments, numbered from 1 in the order in which they were begun.
//!
//! A segment begins with a frame that says where the one before it ends: what stands behind that counts for nothing. Behind
//! what was written to it there may be room.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tracing::error;

use super::StoreError;
use super::changes::Change;
use super::disk::{Backing, Dir, Medium, OpenError, private};
use super::frame::{self, Damage};

/// Directory of the journal in the state directory.
const DIR: &str = "journal";

/// What Linux says of a sector that cannot be read (errno(3)).
pub(super) const EIO: i32 = 5;

/// Bytes of the frame that a segment begins with.
pub(super) const HEADER_BYTES: u64 = frame::length(&[0; size_of::<u64>()]);

/// A place in the journal, between two frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    /// 0 before the first one.
    pub(super) segment: u64,
    /// In bytes.
    pub(super) offset: u64,
}

impl Position {
    /// Where a frame stands that begins here.
    pub(super) const fn frame(&self, carried: &[u8]) -> Place {
        Place { segment: self.segment, begin: self.offset, end: self.offset + frame::length(carried) }
    }
}

/// Where a frame stands, or several in a row do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u64,
    /// In bytes.
    pub(super) begin: u64,
    /// The offset after it.
    pub(super) end: u64,
}

impl Place {
    pub(super) const fn before(&self) -> Position {
        Position { segment: self.segment, offset: self.begin }
    }

    pub(super) const fn after(&self) -> Position {
        Position { segment: self.segment, offset: self.end }
    }
}

/// What stands in a segment from a position on.
#[derive(Debug)]
pub(super) struct Content {
    /// Where the segment before it ends, if this is its beginning and it was begun.
    after: Option<u64>,
    pub(super) changes: Vec<(Place, Change)>,
    end: Position,
}

#[derive(Debug, Clone)]
pub(super) struct Segments {
    path: PathBuf,
    backing: Backing,
    /// Those before this number may be removed.
    forgotten: Arc<AtomicU64>,
}

impl Segments {
    /// Makes the directory where there is none.
    pub(super) fn open(dir: &Dir, backing: &Backing) -> Result<Self, OpenError> {
        let path = dir.join(DIR);
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(OpenError::file(&path))?;
        dir.sync()?;
        Ok(Self { path, backing: backing.clone(), forgotten: Arc::default() })
    }

    /// Numbers of those that are there, in their order.
    pub(super) fn numbers(&self) -> Result<Vec<u64>, OpenError> {
        let failed = || OpenError::file(&self.path);
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed())? {
            let name = entry.map_err(failed())?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            numbers.extend(number.filter(|number| self.path(*number).file_name() == Some(&name)));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn path(&self, number: u64) -> PathBuf {
        // Twenty digits have room for any number: names sort as numbers do.
        self.path.join(format!("{number:020}"))
    }

    /// The file of a segment that is begun: it is empty, and its name is durable.
    pub(super) fn create(&self, number: u64) -> io::Result<Arc<dyn Medium>> {
        let file = self.backing.of(DIR, private(&self.path(number))?);
        file.resize(0)?;
        File::open(&self.path)?.sync_all()?;
        Ok(file.into())
    }

    /// The file of a segment that is gone on with behind a position.
    pub(super) fn reopen(&self, end: Position) -> io::Result<Arc<dyn Medium>> {
        let file = self.backing.of(DIR, private(&self.path(end.segment))?);
        file.resize(end.offset)?;
        file.sync()?;
        Ok(file.into())
    }

    fn file(&self, number: u64) -> io::Result<Box<dyn Medium>> {
        File::open(self.path(number)).map(|file| self.backing.of(DIR, file))
    }

    /// Whether there is a file of this number, or nobody can tell.
    pub(super) fn has(&self, number: u64) -> bool {
        self.path(number).try_exists().unwrap_or(true)
    }

    /// What stands at a place; `None` if nothing does that can be read. Fails if that could not be found out.
    pub(super) fn read(&self, place: Place) -> Result<Option<Vec<u8>>, StoreError> {
        let file = match self.file(place.segment) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| failed(&error))?,
        };
        let read = || {
            let length = place.end.min(file.length()?).saturating_sub(place.begin);
            let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            file.read_at(place.begin, &mut bytes)?;
            Ok(bytes)
        };
        match read() as io::Result<_> {
            // A disk that has lost a sector says so again and again.
            Err(error) if error.raw_os_error() == Some(EIO) => {
                error!(%error, segment = place.segment, "the journal cannot be read");
                Ok(None)
            }
            read => read.map(Some).map_err(|error| failed(&error)),
        }
    }

    /// Nobody needs anything of the segments before this one: they may be removed.
    pub(super) fn forget_before(&self, number: u64) {
        self.forgotten.fetch_max(number, Ordering::Release);
    }

    /// Whether that was said of a segment since the start.
    pub(super) fn is_forgotten(&self, number: u64) -> bool {
        number < self.forgotten.load(Ordering::Acquire)
    }

    pub(super) fn remove(&self, number: u64) -> io::Result<()> {
        match std::fs::remove_file(self.path(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Calls with what stands in each segment from a position on, made durable; tells where it ends. A segment that was not
    /// begun is none. Fails for a journal that is damaged, or that is not the one of the records that have this position.
    pub(super) fn each_since(
        &self,
        from: Position,
        mut take: impl FnMut(Content) -> Result<(), OpenError>,
    ) -> Result<Position, OpenError> {
        let numbers = self.numbers()?;
        let is_last = |number| numbers.last() == Some(&number);
        let (mut before, mut end, mut filed) = (None, from, from.offset);
        if from != Position::default() {
            numbers.binary_search(&from.segment).map_err(|_| self.missing(from.segment))?;
            let content = self.content(from, is_last(from.segment))?;
            end = content.end;
            before = Some(content);
        }
        for number in numbers.iter().copied().filter(|number| *number > from.segment) {
            let next = self.content(Position { segment: number, offset: 0 }, is_last(number))?;
            let Some(after) = next.after else { continue };
            if number == end.segment + 1 {
                if after > end.offset {
                    return Err(self.damage(end.segment, shorter(end.offset, after)));
                }
                if after < filed {
                    return Err(
                        self.damage(number, format!("it follows on byte {after}, and {filed} were filed"))
                    );
                }
                if let Some(before) = &mut before {
                    before.changes.retain(|(place, _)| place.end <= after);
                }
            } else if after > 0 || number > end.segment + 2 {
                // Of one whose beginning was lost nothing was durable.
                return Err(self.missing(end.segment + 1));
            }
            (end, filed) = (next.end, 0);
            before.replace(next).map_or(Ok(()), &mut take)?;
        }
        before.map_or(Ok(()), take)?;
        Ok(end)
    }

    fn content(&self, from: Position, is_last: bool) -> Result<Content, OpenError> {
        let segment = from.segment;
        let bytes = self.from(from)?;
        let found = frame::read(&bytes, segment, from.offset).map_err(|Damage(at)| {
            let advice =
                if is_last { " (to go on without what follows, cut the file off there)" } else { "" };
            self.damage(segment, format!("what stands at byte {at} was changed{advice}"))
        })?;
        let offset = found.last().map_or(from.offset, |last| last.end);
        let mut content = Content { after: None, changes: Vec::new(), end: Position { segment, offset } };
        for frame in found {
            if frame.begin == 0 {
                let after = frame.carried.try_into().map(u64::from_le_bytes);
                let what = "it does not begin as it should";
                content.after = Some(after.map_err(|_| self.damage(segment, what.to_owned()))?);
            } else {
                let carried = Bytes::copy_from_slice(frame.carried);
                let change = Change::parse(&carried).map_err(|error| self.damage(segment, error.0))?;
                content.changes.push((Place { segment, begin: frame.begin, end: frame.end }, change));
            }
        }
        Ok(content)
    }

    /// All bytes of a segment from a position on, made durable.
    fn from(&self, from: Position) -> Result<Vec<u8>, OpenError> {
        let path = self.path(from.segment);
        let file = File::options().read(true).write(true).open(&path).map_err(OpenError::file(&path))?;
        let file = self.backing.of(DIR, file);
        let length = file.length().map_err(OpenError::file(&path))?;
        let Some(length) = length.checked_sub(from.offset) else {
            return Err(self.damage(from.segment, shorter(length, from.offset)));
        };
        if Self::is_room_before(&*file, from).map_err(OpenError::file(&path))? {
            return Err(
                self.damage(from.segment, format!("nothing was written to it before byte {}", from.offset))
            );
        }
        let length =
            usize::try_from(length).map_err(|_| self.damage(from.segment, "it is too long".to_owned()));
        let mut bytes = vec![0; length?];
        // A sync may have failed before, which the system says once, and not write again by itself what it has.
        let kept = file.read_at(from.offset, &mut bytes).and_then(|()| file.write_at(from.offset, &bytes));
        kept.and_then(|()| file.sync()).map_err(OpenError::file(&path))?;
        Ok(bytes)
    }

    /// Whether nothing was written to a file where a frame ends.
    fn is_room_before(file: &dyn Medium, end: Position) -> io::Result<bool> {
        // Each has a head, and hardly anything that it may carry ends with as many such bytes.
        let mut bytes = [0; frame::HEAD_BYTES];
        let Some(begin) = end.offset.checked_sub(bytes.len() as u64) else { return Ok(false) };
        file.read_at(begin, &mut bytes)?;
        Ok(bytes.iter().all(|byte| *byte == frame::ROOM))
    }

    /// There are segments, and the database is older than any.
    pub(super) fn is_newer(&self) -> OpenError {
        let what = "it is newer than the database beside it, which an earlier version made".to_owned();
        OpenError::Journal { path: self.path.clone(), what }
    }

    fn damage(&self, number: u64, what: String) -> OpenError {
        OpenError::Journal { path: self.path(number), what }
    }

    fn missing(&self, number: u64) -> OpenError {
        self.damage(number, "it is not there".to_owned())
    }
}

fn shorter(is: u64, was: u64) -> String {
    format!("it ends at byte {is}, and had {was}")
}

pub(super) fn failed(error: &io::Error) -> StoreError {
    StoreError(format!("the journal: {error}"))
}
