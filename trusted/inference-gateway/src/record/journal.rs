//! The journal: where changes are until the database has them.
//!
//! Changes gather in a *generation*, which stands in one of two files. When a generation goes to the database, the next
//! one gathers in the other file; the database says in the same transaction that it has it. So after a crash each
//! generation is either in the database or in the journal, and never in both.
//!
//! A change is acknowledged when it was written: from then on an end of the process does not lose it. A loss of power
//! may lose what was not made durable, which is what came within some milliseconds.

use std::io;
use std::path::PathBuf;

use parking_lot::{Mutex, MutexGuard};

use super::StoreError;
use super::changes::Change;
use super::disk::{Backing, Dir, Medium, OpenError};
use super::frame;
use super::trouble::{Trouble, Troubles};

/// The files, for even and odd generations.
const FILES: [&str; 2] = ["journal.0", "journal.1"];

/// The open files.
#[derive(Debug)]
pub(super) struct Journal {
    even: Box<dyn Medium>,
    odd: Box<dyn Medium>,
    paths: [PathBuf; 2],
    state: Mutex<State>,
}

/// What was written. Who holds it writes alone.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The generation that gathers.
    generation: u64,
    /// Bytes that it has in its file.
    length: u64,
    /// Of these, how many are durable.
    durable: u64,
    /// The generation before.
    before: Before,
    /// Behind these bytes are frames of what nobody was told, which could not be cut off: nothing is written.
    /// [`Trouble::Writing`] tells.
    is_torn: bool,
    /// A sync failed: what the files show may be lost, and nothing is written. [`Trouble::Syncing`] tells.
    is_unsure: bool,
}

/// What is in the other file.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    /// Bytes that the generation has.
    length: u64,
    /// Whether some of them may not be durable.
    is_unsure: bool,
    /// As of the generation that gathers.
    is_torn: bool,
}

impl State {
    /// The next generation gathers in the other file, which has to be free.
    pub(super) fn turn(&mut self) {
        *self = Self {
            generation: self.generation + 1,
            before: Before {
                length: self.length,
                is_unsure: self.is_torn || self.durable < self.length,
                is_torn: self.is_torn,
            },
            is_unsure: self.is_unsure,
            ..Self::default()
        };
    }

    fn note_sync(&mut self, troubles: &Troubles, synced: &Result<(), StoreError>) {
        self.is_unsure |= synced.is_err();
        troubles.note(Trouble::Syncing, synced);
    }
}

impl Journal {
    /// Whether there is anything of a journal in the directory.
    pub(super) fn exists(dir: &Dir) -> Result<bool, OpenError> {
        for name in FILES {
            let path = dir.join(name);
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.len() > 0 => return Ok(true),
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(OpenError::File(path, error));
                }
                _ => {}
            }
        }
        Ok(false)
    }

    /// Opens the files; makes those that are not there.
    pub(super) fn open(dir: &Dir, backing: &Backing) -> Result<Self, OpenError> {
        let [even, odd] = FILES.map(|name| dir.medium(name, backing));
        let (even, odd) = (even?, odd?);
        dir.sync()?;
        let paths = FILES.map(|name| dir.join(name));
        Ok(Self { even, odd, paths, state: Mutex::default() })
    }

    fn file(&self, generation: u64) -> &dyn Medium {
        if generation.is_multiple_of(2) { &*self.even } else { &*self.odd }
    }

    /// Generations that the database does not have, oldest first; `next` is the one that it has to have next. Fails
    /// for a journal that is damaged, or of other records.
    pub(super) fn read(&self, next: u64) -> Result<Vec<(u64, Vec<Change>)>, OpenError> {
        let mut generations = Vec::new();
        for (file, path) in [&self.even, &self.odd].into_iter().zip(&self.paths) {
            let damaged = |what: String| OpenError::Journal { path: path.clone(), what };
            let length = file.length().map_err(OpenError::file(path))?;
            let mut bytes =
                vec![0; usize::try_from(length).map_err(|_| damaged("it is too long".to_owned()))?];
            file.read_at(0, &mut bytes).map_err(OpenError::file(path))?;
            let found = frame::read(&bytes, next)
                .map_err(|frame::Damage(at)| damaged(format!("what stands at byte {at} was changed")))?;
            let Some(found) = found else { continue };
            if found.generation > next.saturating_add(1) {
                return Err(damaged("it belongs to other records, or to newer ones".to_owned()));
            }
            let changes = found.carried.into_iter().filter(|carried| !carried.is_empty()).map(Change::parse);
            let changes = changes.collect::<Result<_, _>>().map_err(|error| damaged(error.0))?;
            generations.push((found.generation, changes));
        }
        generations.sort_by_key(|(generation, _)| *generation);
        Ok(generations)
    }

    /// From now on changes gather in this generation; the database has all that is in the files. They are emptied, and
    /// durably: a number of a generation may come again that a part of its frames is still there of.
    pub(super) fn begin(&self, generation: u64) -> Result<(), OpenError> {
        for (file, path) in [&self.even, &self.odd].into_iter().zip(&self.paths) {
            file.resize(0).and_then(|()| file.sync()).map_err(OpenError::file(path))?;
        }
        *self.state.lock() = State { generation, ..State::default() };
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// `None` while somebody else has it.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock()
    }

    /// Whether a sync has failed, and no [probe](Self::probe) was well since.
    pub(super) fn is_unsure(&self) -> bool {
        self.state.lock().is_unsure
    }

    /// Writes changes in their order, all with one call. After a failure it is as if nothing was written.
    pub(super) fn append<'a>(
        &self,
        state: &mut State,
        troubles: &Troubles,
        changes: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), StoreError> {
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_none() {
            // This tells nothing about the disk.
            return Ok(());
        }
        if state.is_torn || state.is_unsure {
            return Err(StoreError::closed());
        }
        let written = self.write(state, changes).map_err(|error| failed(&error));
        troubles.note(Trouble::Writing, &written);
        written
    }

    fn write<'a>(&self, state: &mut State, changes: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        if state.before.is_torn {
            self.file(state.generation.wrapping_sub(1)).resize(state.before.length)?;
            // That is to be made durable, too.
            (state.before.is_torn, state.before.is_unsure) = (false, true);
        }
        let (mut bytes, mut changes) = (Vec::new(), changes.into_iter().peekable());
        while let Some(carried) = changes.next() {
            let is_last = changes.peek().is_none();
            frame::write(&mut bytes, state.generation, state.durable, carried, is_last);
        }
        let file = self.file(state.generation);
        file.write_at(state.length, &bytes).inspect_err(|_| {
            // Frames of what nobody was told may be there, and must not stand behind others. They count for nothing
            // without the last one, which a write that failed did not finish; should it be there all the same, they
            // have no beginning from now on: bytes that are there can be changed where there is room for no others.
            state.is_torn = file.resize(state.length).is_err();
            if state.is_torn {
                let _ = file.write_at(state.length, &[0; frame::MARK_BYTES]);
            }
        })?;
        state.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes durable what was written. After a failure nothing is written until a [probe](Self::probe) is well.
    pub(super) fn sync(&self, troubles: &Troubles) {
        let State { generation, length, durable, before, is_unsure, .. } = *self.state.lock();
        if is_unsure {
            return;
        }
        // Others write meanwhile.
        let synced = self.sync_files(generation, before.is_unsure, durable < length);
        let mut state = self.state.lock();
        if synced.is_ok() && state.generation == generation {
            (state.durable, state.before.is_unsure) = (length, state.before.is_torn);
        }
        state.note_sync(troubles, &synced);
    }

    fn sync_files(&self, generation: u64, is_before: bool, is_now: bool) -> Result<(), StoreError> {
        let synced = if is_before { self.file(generation.wrapping_sub(1)).sync() } else { Ok(()) };
        let synced = synced.and_then(|()| if is_now { self.file(generation).sync() } else { Ok(()) });
        synced.map_err(|error| failed(&error))
    }

    /// Finds out whether the files take bytes again, and keep them; nobody writes meanwhile. Whoever asks knows that the
    /// database has all that was written, if a sync has failed.
    pub(super) fn probe(&self, troubles: &Troubles) {
        let mut state = self.state.lock();
        if state.is_unsure {
            // What the kernel may have dropped must not stand before anything that is kept.
            *state = State { generation: state.generation, is_unsure: true, ..State::default() };
        }
        let written = self.write_probe(&mut state).map_err(|error| failed(&error));
        if written.is_err() {
            return troubles.note(Trouble::Writing, &written);
        }
        let synced = self.sync_files(state.generation, state.before.is_unsure, true);
        if synced.is_ok() {
            (state.durable, state.before.is_unsure) = (state.length, false);
            (state.is_torn, state.is_unsure) = (false, false);
            troubles.note(Trouble::Writing, &written);
        }
        state.note_sync(troubles, &synced);
    }

    fn write_probe(&self, state: &mut State) -> io::Result<()> {
        self.file(state.generation).resize(state.length)?;
        self.write(state, [&[][..]])
    }

    /// Empties the files of a journal that the database has all of.
    pub(super) fn clear(&self) {
        for file in [&self.even, &self.odd] {
            // What stays is of generations that are over, and nothing.
            let _ = file.resize(0);
        }
    }
}

fn failed(error: &io::Error) -> StoreError {
    StoreError(format!("the journal: {error}"))
}
