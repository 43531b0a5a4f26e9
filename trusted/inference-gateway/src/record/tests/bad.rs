//! Disks that fail when they are told to.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::record::disk::{Backing, Medium};
use crate::record::frame::MARK_BYTES;
use crate::record::segments::EIO;

/// How a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Disk {
    Well,
    /// It takes nothing.
    Full,
    /// It takes nothing that is not small.
    NearlyFull,
    /// It takes nothing more than it has room for already.
    NoLarger,
    /// It takes nothing of the database.
    FullForDatabase,
    /// It does not say that it keeps anything of the database.
    ForgetfulOfDatabase,
    /// It does not say so of the journal, and loses what it was given for it.
    ForgetfulOfJournal,
    /// The same for good of what is opened of the journal while it is so.
    ForgetfulOfOpened,
    /// It reads nothing of the journal.
    UnreadableJournal,
    /// It writes to the journal and says that it did not, and takes nothing back.
    Torn,
    /// It writes all but the last byte of each piece that is larger than a mark to the journal, and takes nothing back.
    Cut,
    /// Nothing that is done to it has an effect any more: as for a process that was killed.
    Dead,
}

/// Most bytes that a nearly full disk takes.
const SMALL: usize = 100;

/// A disk whose state the test makes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bad(Arc<State>);

#[derive(Debug, Default)]
struct State {
    disk: AtomicU8,
    failed_syncs: AtomicU64,
    /// How often it took nothing.
    refused: AtomicU64,
    /// Bytes of the database that were read.
    read: AtomicU64,
    /// Where something was written since a sync, and how many bytes.
    unsure: Mutex<Vec<(Arc<File>, u64, usize)>>,
}

impl Bad {
    pub(crate) fn becomes(&self, disk: Disk) {
        self.0.disk.store(disk as u8, Ordering::SeqCst);
    }

    /// How often it did not say that it keeps the journal.
    pub(crate) fn failed_syncs(&self) -> u64 {
        self.0.failed_syncs.load(Ordering::SeqCst)
    }

    /// How often it took nothing because it was full.
    pub(crate) fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::SeqCst)
    }

    /// Bytes of the database that were read.
    pub(crate) fn read(&self) -> u64 {
        self.0.read.load(Ordering::SeqCst)
    }

    pub(crate) fn backing(&self) -> Backing {
        let state = Arc::clone(&self.0);
        Backing::from_fn(move |name, file| {
            let mut through = Through {
                file: Arc::new(file),
                state: Arc::clone(&state),
                is_journal: name.starts_with("journal"),
                is_lost: false,
            };
            through.is_lost = through.is_journal && through.is(Disk::ForgetfulOfOpened);
            Box::new(through)
        })
    }
}

#[derive(Debug)]
struct Through {
    file: Arc<File>,
    state: Arc<State>,
    is_journal: bool,
    /// It never says that it keeps anything of this file.
    is_lost: bool,
}

impl Through {
    fn is(&self, disk: Disk) -> bool {
        self.state.disk.load(Ordering::SeqCst) == disk as u8
    }

    fn lives(&self) -> io::Result<()> {
        if self.is(Disk::Dead) { Err(io::Error::other("dead")) } else { Ok(()) }
    }
}

impl Medium for Through {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.is_journal && self.is(Disk::UnreadableJournal) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        if !self.is_journal {
            self.state.read.fetch_add(out.len() as u64, Ordering::SeqCst);
        }
        Medium::read_at(&*self.file, offset, out)
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        self.lives()?;
        if self.is_journal && (self.is(Disk::Torn) || self.is(Disk::Cut)) {
            self.state.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::Error::other("torn"));
        }
        if self.is(Disk::NoLarger) && length > self.file.length()? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.resize(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.lives()?;
        if self.is_lost || self.is_journal && self.is(Disk::ForgetfulOfJournal) {
            for (file, offset, bytes) in self.state.unsure.lock().drain(..) {
                Medium::write_at(&*file, offset, &vec![0; bytes])?;
            }
            self.state.failed_syncs.fetch_add(1, Ordering::SeqCst);
            return Err(io::Error::other("lost"));
        }
        if !self.is_journal && self.is(Disk::ForgetfulOfDatabase) {
            return Err(io::Error::other("lost"));
        }
        self.state.unsure.lock().retain(|(file, ..)| !Arc::ptr_eq(file, &self.file));
        self.file.sync()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.lives()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.is(Disk::Full)
            || (self.is(Disk::NearlyFull) && bytes.len() > SMALL)
            || (!self.is_journal && self.is(Disk::FullForDatabase))
        {
            self.state.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.is(Disk::NoLarger) && offset + bytes.len() as u64 > self.file.length()? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.is_journal && self.is(Disk::Cut) {
            if bytes.len() > MARK_BYTES {
                let (all, _) = bytes.split_at(bytes.len() - 1);
                Medium::write_at(&*self.file, offset, all)?;
            }
            self.state.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
        Medium::write_at(&*self.file, offset, bytes)?;
        if self.is_journal {
            self.state.unsure.lock().push((Arc::clone(&self.file), offset, bytes.len()));
        }
        if self.is_journal && self.is(Disk::Torn) {
            self.state.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::Error::other("torn"));
        }
        Ok(())
    }
}
