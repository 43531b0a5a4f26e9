//! Disks that fail when they are told to.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::record::disk::{Backing, Medium};

/// How a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Disk {
    Well,
    /// It takes nothing.
    Full,
    /// It takes nothing of the database.
    FullForDatabase,
    /// It does not say that it keeps anything.
    Forgetful,
    /// It does not say so of the journal.
    ForgetfulOfJournal,
    /// Nothing that is done to it has an effect any more: as for a process that was killed.
    Dead,
}

/// A disk whose state the test makes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bad(Arc<AtomicU8>);

impl Bad {
    pub(crate) fn becomes(&self, disk: Disk) {
        self.0.store(disk as u8, Ordering::SeqCst);
    }

    pub(crate) fn backing(&self) -> Backing {
        let state = Arc::clone(&self.0);
        Backing::from_fn(move |name, file| {
            Box::new(Through { file, state: Arc::clone(&state), is_journal: name.starts_with("journal") })
        })
    }
}

#[derive(Debug)]
struct Through {
    file: File,
    state: Arc<AtomicU8>,
    is_journal: bool,
}

impl Through {
    fn is(&self, disk: Disk) -> bool {
        self.state.load(Ordering::SeqCst) == disk as u8
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
        Medium::read_at(&self.file, offset, out)
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        self.lives()?;
        self.file.resize(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.lives()?;
        if self.is(Disk::Forgetful) || (self.is_journal && self.is(Disk::ForgetfulOfJournal)) {
            return Err(io::Error::other("lost"));
        }
        self.file.sync()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.lives()?;
        if self.is(Disk::Full) || (!self.is_journal && self.is(Disk::FullForDatabase)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Medium::write_at(&self.file, offset, bytes)
    }
}
