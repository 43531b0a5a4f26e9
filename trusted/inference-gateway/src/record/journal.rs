//! The journal: every change is written to it first, and receipts stay there. The database has the rest of what they bring,
//! and where each receipt stands.
//!
//! It is written to the end of its last [segment](super::segments). The database says up to which position it has everything:
//! what stands behind that is filed by a start after a crash. A segment is removed when the database needs nothing of it
//! any more.
//!
//! A change is acknowledged when it was written: from then on an end of the process does not lose it. A loss of power
//! may lose what was not made durable, which is what came within some milliseconds.
//!
//! Where a disk does not do what it should, and it does not stand as before, the journal goes on in another segment, with all
//! that may not be durable.

use std::io;
use std::iter;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard, RwLock};
use tracing::warn;

use super::StoreError;
use super::changes::Change;
use super::disk::Medium;
use super::frame;
use super::pending::{Going, Pending};
use super::segments::{HEADER_BYTES, Position, Segments, failed};
use super::trouble::{Trouble, Troubles};

/// Most bytes of room that a segment has behind what was written. Into room, the kernel writes sooner than behind the end of a file,
/// where it has to find each page of memory and each block of the disk.
const ROOM_BYTES: usize = 64 << 10;
static ROOM: [u8; ROOM_BYTES] = [frame::ROOM; ROOM_BYTES];
/// How much a disk has to take to be well again.
const PROBE: &[u8] = &ROOM;
/// A segment that has so many bytes is the last one no longer.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Nor is one that was begun so long ago: it stays as long as its newest receipt.
const SEGMENT_TIME: Duration = Duration::from_hours(1);
/// Memory for frames stays from one write to the next if it is no more than this, in bytes.
const KEPT_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Journal {
    pub(super) segments: Segments,
    /// Who makes something durable, or begins a segment, does it alone; locked before the state.
    durability: Mutex<()>,
    state: Mutex<State>,
    /// Segments that are there, before the last one.
    former: Mutex<Vec<u64>>,
}

/// The last segment. Who holds it writes alone.
#[derive(Debug)]
pub(super) struct State {
    number: u64,
    file: Arc<dyn Medium>,
    /// Memory for frames that are made ready.
    frames: Vec<u8>,
    began: Instant,
    /// With so many bytes it is full.
    most: u64,
    /// Bytes that were written.
    length: u64,
    /// Of these, how many are durable.
    durable: u64,
    /// When the last sync began: what was written before is durable, or the state is [unsure](Self::is_unsure).
    sync_began: Instant,
    /// Before this offset no more room is to be made.
    room: u64,
    /// Behind these bytes are frames of what nobody was told, which could not be cut off: nothing is written.
    /// [`Trouble::Writing`] tells.
    is_torn: bool,
    /// A sync failed: what the file shows may be lost, and nothing is written. [`Trouble::Syncing`] tells.
    is_unsure: bool,
    /// How often changes have got other places.
    moves: u64,
}

impl State {
    /// Of an empty segment.
    fn new(number: u64, file: Arc<dyn Medium>, moves: u64) -> Self {
        let now = Instant::now();
        Self {
            number,
            file,
            frames: Vec::new(),
            began: now,
            most: SEGMENT_BYTES,
            length: 0,
            durable: 0,
            sync_began: now,
            room: 0,
            is_torn: false,
            is_unsure: false,
            moves,
        }
    }

    /// How often changes have got other places.
    pub(super) const fn moves(&self) -> u64 {
        self.moves
    }

    /// Where it is written to.
    const fn end(&self) -> Position {
        Position { segment: self.number, offset: self.length }
    }

    /// The end of what is durable.
    const fn durable_end(&self) -> Position {
        Position { segment: self.number, offset: self.durable }
    }

    /// The same, if that is all of it.
    pub(super) fn whole_end(&self) -> Option<Position> {
        (self.durable == self.length && !self.is_torn && !self.is_unsure).then(|| self.durable_end())
    }

    fn is_full(&self) -> bool {
        self.length >= self.most || (self.length > HEADER_BYTES && self.began.elapsed() >= SEGMENT_TIME)
    }

    /// Writes changes in their order, all with one call, and says where the first stands; the others follow it. After a
    /// failure it is as if nothing was written.
    pub(super) fn append<'a>(
        &mut self,
        troubles: &Troubles,
        changes: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Position, StoreError> {
        let (begin, mut changes) = (self.end(), changes.into_iter().peekable());
        if changes.peek().is_none() {
            // This tells nothing about the disk.
            return Ok(begin);
        }
        if self.is_torn || self.is_unsure {
            return Err(StoreError::closed());
        }
        let written = self.write(changes).map_err(|error| failed(&error));
        troubles.note(Trouble::Writing, &written);
        written.map(|()| begin)
    }

    fn write<'a>(&mut self, mut changes: iter::Peekable<impl Iterator<Item = &'a [u8]>>) -> io::Result<()> {
        let mut frames = mem::take(&mut self.frames);
        while let Some(carried) = changes.next() {
            frame::write(&mut frames, self.number, self.durable, carried, changes.peek().is_none());
        }
        self.file.write_at(self.length, &frames).inspect_err(|_| self.cut())?;
        self.length += frames.len() as u64;
        if frames.capacity() <= KEPT_BYTES {
            frames.clear();
            self.frames = frames;
        }
        if self.length > self.room {
            self.make_room();
        }
        Ok(())
    }

    /// Makes room for what is written next. What cannot be had now is tried again when as much was written.
    fn make_room(&mut self) {
        self.room = self.length + ROOM.len() as u64;
        if self.file.write_at(self.length, &ROOM).is_err() {
            let _ = self.file.resize(self.length);
        }
    }

    /// Gives back what nothing was written to.
    fn give_back_room(&mut self) -> io::Result<()> {
        self.room = 0;
        self.file.resize(self.length)
    }

    /// Takes back what a write may have left.
    fn cut(&mut self) {
        // Frames of what nobody was told may be there, and must not stand behind others. They count for nothing
        // without the last one, which a write that failed did not finish; should it be there all the same, they
        // have no beginning from now on: bytes that are there can be changed where there is room for no others.
        self.is_torn = self.give_back_room().is_err();
        if self.is_torn {
            let _ = self.file.write_at(self.length, &[0; frame::MARK_BYTES]);
        }
    }

    /// Finds out whether as much is taken as changes may need, and kept.
    fn try_out(&mut self) -> io::Result<()> {
        let written = self.file.write_at(self.length, PROBE);
        self.cut();
        written?;
        if self.is_torn { Err(io::Error::other("it takes nothing back")) } else { Ok(()) }
    }

    /// Up to this many bytes were made durable, or were to be.
    fn note_sync(&mut self, troubles: &Troubles, length: u64, synced: &Result<(), StoreError>) {
        match synced {
            Ok(()) => self.durable = length,
            Err(_) => self.is_unsure = true,
        }
        troubles.note(Trouble::Syncing, synced);
    }
}

impl Journal {
    /// Goes on behind a position, in a segment of its own unless nothing is in that one.
    pub(super) fn begin(segments: Segments, end: Position) -> io::Result<Self> {
        let state = if end.offset == HEADER_BYTES {
            State { length: end.offset, ..State::new(end.segment, segments.reopen(end)?, 0) }
        } else {
            let (state, _) = next(&segments, end, 0, &[])?;
            state.file.sync()?;
            state
        };
        let state = State { durable: state.length, ..state };
        let mut former = segments.numbers().map_err(io::Error::other)?;
        former.retain(|number| *number < state.number);
        // An older copy of the database may still name those before.
        segments.forget_before(former.first().copied().unwrap_or(state.number));
        Ok(Self {
            segments,
            durability: Mutex::default(),
            state: Mutex::new(state),
            former: Mutex::new(former),
        })
    }

    /// Where it is written to.
    pub(super) fn end(&self) -> Position {
        self.state.lock().end()
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

    /// Makes durable what was written. After a failure nothing is written until a [probe](Self::probe) is well.
    pub(super) fn sync(&self, troubles: &Troubles) {
        let _alone = self.durability.lock();
        let (file, length) = {
            let mut state = self.state.lock();
            if state.is_unsure || state.durable == state.length {
                return;
            }
            state.sync_began = Instant::now();
            (Arc::clone(&state.file), state.length)
        };
        // Others write meanwhile.
        let synced = file.sync().map_err(|error| failed(&error));
        self.state.lock().note_sync(troubles, length, &synced);
    }

    /// The time since a sync began last: what was written longer ago is durable, unless that sync goes on or has failed.
    pub(super) fn since_sync(&self) -> Duration {
        self.state.lock().sync_began.elapsed()
    }

    /// Makes durable what goes to the database, before that says where it stands. Fails if it stands elsewhere by now.
    pub(super) fn settle(&self, troubles: &Troubles, going: &Going) -> Result<(), StoreError> {
        let Some(end) = going.end() else { return Ok(()) };
        let is_settled = || {
            let state = self.state.lock();
            let is_there = state.moves == going.moves;
            is_there && end <= state.durable_end()
        };
        if !is_settled() {
            self.sync(troubles);
        }
        if is_settled() { Ok(()) } else { Err(StoreError::unsettled()) }
    }

    /// Goes on in another segment if the last one is full. Where that cannot be done, it grows.
    pub(super) fn turn(&self, troubles: &Troubles) {
        if !self.state.lock().is_full() {
            return;
        }
        // Most of it while others write.
        self.sync(troubles);
        let _alone = self.durability.lock();
        let mut state = self.state.lock();
        if state.is_torn || state.is_unsure {
            return;
        }
        let synced = state.file.sync().map_err(|error| failed(&error));
        let length = state.length;
        state.note_sync(troubles, length, &synced);
        if synced.is_ok() {
            match next(&self.segments, state.end(), state.moves, &[]) {
                Ok((begun, _)) => {
                    let mut former = self.replace(&mut state, begun);
                    drop(state);
                    // Others write meanwhile. Room that stays is no harm.
                    let _ = former.give_back_room();
                }
                Err(error) => {
                    warn!(%error, "no other segment of the journal can be begun: this one grows");
                    (state.most, state.began) = (state.length + SEGMENT_BYTES, Instant::now());
                    // A start would believe one that could not be removed: what is written here would count for nothing.
                    state.is_torn = self.segments.has(state.number + 1);
                    if state.is_torn {
                        troubles.note::<()>(Trouble::Writing, &Err(failed(&error)));
                    }
                }
            }
        }
    }

    /// Finds out whether the disk takes bytes again, and keeps them; nobody writes meanwhile. What may not have been
    /// durable stands somewhere else after that, unless the segment is as it was before what failed, and well.
    pub(super) fn probe(&self, troubles: &Troubles, pending: &RwLock<Pending>) {
        let _alone = self.durability.lock();
        let mut state = self.state.lock();
        if !state.is_torn && !state.is_unsure && state.try_out().is_ok() {
            let (length, synced) = (state.length, state.file.sync().map_err(|error| failed(&error)));
            troubles.note(Trouble::Writing, &Ok(()));
            return state.note_sync(troubles, length, &synced);
        }
        let sure = state.durable_end();
        // Nothing of this can be filed before it is durable.
        let moved: Vec<_> = pending.read().since_position(sure).map(Change::to_bytes).collect();
        let begun = next(&self.segments, sure, state.moves + 1, &moved)
            .and_then(|(mut begun, first)| {
                begun.try_out().inspect_err(|_| drop(self.segments.remove(begun.number)))?;
                Ok((begun, first))
            })
            .map_err(|error| failed(&error));
        troubles.note(Trouble::Writing, &begun);
        let Ok((begun, first)) = begun else {
            state.is_torn |= self.segments.has(state.number + 1);
            return;
        };
        let synced = begun.file.sync().map_err(|error| failed(&error));
        if synced.is_ok() {
            let begun = State { durable: begun.length, ..begun };
            drop(self.replace(&mut state, begun));
            let places = moved.iter().scan(first, |at, carried| {
                let place = at.frame(carried);
                *at = place.after();
                Some(place)
            });
            pending.write().place_again(sure, places);
        }
        state.is_unsure = synced.is_err();
        troubles.note(Trouble::Syncing, &synced);
    }

    /// Another segment is the last one from now on; the one before it comes back.
    fn replace(&self, state: &mut State, begun: State) -> State {
        self.former.lock().push(state.number);
        mem::replace(state, begun)
    }

    /// Nothing is written any more: gives back room. What stays is no harm.
    pub(super) fn end_writing(&self) {
        let _ = self.state.lock().give_back_room();
    }

    /// Removes all segments before this one: the database needs nothing of them.
    pub(super) fn forget_before(&self, number: u64) {
        self.segments.forget_before(number);
        self.former.lock().retain(|former| {
            if *former < number {
                // The next start tries it again.
                let _ = self.segments.remove(*former).inspect_err(
                    |error| warn!(%error, segment = former, "a segment of the journal cannot be removed"),
                );
            }
            *former >= number
        });
    }

    /// With so many bytes the segment is full.
    #[cfg(test)]
    pub(super) fn set_most(&self, bytes: u64) {
        self.state.lock().most = bytes;
    }
}

/// Begins the segment behind a position, with some changes, and says where the first of them stands. After a failure it is
/// removed, if that can be done.
fn next(
    segments: &Segments,
    after: Position,
    moves: u64,
    changes: &[Vec<u8>],
) -> io::Result<(State, Position)> {
    let number = after.segment + 1;
    let mut state = State::new(number, segments.create(number)?, moves);
    let header = after.offset.to_le_bytes();
    let first = state.end().frame(&header).after();
    let written = state.write(iter::once(&header[..]).chain(changes.iter().map(Vec::as_slice)).peekable());
    written.inspect_err(|_| drop(segments.remove(number)))?;
    Ok((state, first))
}
