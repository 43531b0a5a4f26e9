//! Changes that are in the journal and not yet in the database, as reads look for them, and where they stand.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use rust_decimal::Decimal;
use tokio::sync::OwnedSemaphorePermit;

use super::changes::Change;
use super::segments::{Place, Position};
use super::tables::NameHash;
use crate::admission::KeyHash;

/// A generation has memory for as many changes as the one before it, up to this: half a megabyte.
const FORESEEN: usize = 1024;

/// The changes of one generation.
#[derive(Debug, Default)]
pub(super) struct Generation {
    pub(super) number: u64,
    /// In their order.
    pub(super) changes: Vec<Change>,
    /// The memory that each of them takes, given back with it.
    room: Vec<OwnedSemaphorePermit>,
    first_receipt: u64,
    first_row: u64,
    receipts: Vec<Bytes>,
    rows: Vec<Bytes>,
    pub(super) names: HashMap<NameHash, u64>,
    pub(super) spent: HashMap<KeyHash, Decimal>,
    pub(super) sessions: HashMap<NameHash, Bytes>,
    pub(super) session_ends: HashMap<NameHash, u64>,
    pub(super) fingerprints: HashMap<[u8; 32], u64>,
    /// A control plane knows all rows before this one, or they are set aside.
    pub(super) posted: u64,
    /// Rows that it does not take; `None` when it took one after all.
    pub(super) aside: BTreeMap<u64, Option<Bytes>>,
}

impl Generation {
    /// One without changes. The numbers are those that the next receipt and the next row get.
    pub(super) fn new(number: u64, (first_receipt, first_row): (u64, u64)) -> Self {
        Self { number, first_receipt, first_row, ..Self::default() }
    }

    /// Numbers of the receipt and the row after its last ones.
    pub(super) fn next(&self) -> (u64, u64) {
        (self.first_receipt + self.receipts.len() as u64, self.first_row + self.rows.len() as u64)
    }

    /// The one after this, with memory for as many changes.
    fn following(&self) -> Self {
        let changes = self.changes.len().min(FORESEEN);
        Self {
            changes: Vec::with_capacity(changes),
            room: Vec::with_capacity(changes),
            receipts: Vec::with_capacity(changes),
            rows: Vec::with_capacity(changes),
            names: HashMap::with_capacity(self.names.len().min(2 * FORESEEN)),
            ..Self::new(self.number + 1, self.next())
        }
    }

    fn push(&mut self, change: Change, room: OwnedSemaphorePermit) {
        match &change {
            Change::Finished { key, rows, cost, receipt } => {
                self.rows.extend(rows.iter().cloned());
                let sum = self.spent.entry(*key).or_default();
                *sum = sum.saturating_add(*cost);
                if let Some(receipt) = receipt {
                    let number = self.next().0;
                    self.receipts.push(receipt.entry.clone());
                    self.names.extend(receipt.names.map(|name| (name, number)));
                    if let Some(session) = receipt.session {
                        self.keep_until(session, receipt.needed_until);
                    }
                }
            }
            Change::Session { name, document, ends } => {
                self.sessions.entry(*name).or_insert_with(|| document.clone());
                self.keep_until(*name, *ends);
            }
            Change::Fingerprint { fingerprint, until } => {
                self.fingerprints.insert(*fingerprint, *until);
            }
            Change::Posted { next } => self.posted = *next,
            Change::SetAside { number, row } => {
                self.aside.insert(*number, Some(row.clone()));
            }
            Change::Taken { number } => {
                self.aside.insert(*number, None);
            }
        }
        self.changes.push(change);
        self.room.push(room);
    }

    /// Number of its first receipt, and what the log says of each, if it is to.
    pub(super) fn records(&self) -> (u64, impl Iterator<Item = Bytes>) {
        let records = self.changes.iter().filter_map(|change| match change {
            Change::Finished { receipt: Some(receipt), .. } => receipt.record.clone(),
            _ => None,
        });
        (self.first_receipt, records)
    }

    /// What it has, to be dropped piece by piece: thousands of pieces of memory.
    pub(super) fn into_pieces(self) -> impl Iterator<Item = (Change, OwnedSemaphorePermit)> {
        self.changes.into_iter().zip(self.room)
    }

    fn keep_until(&mut self, session: NameHash, until: u64) {
        let ends = self.session_ends.entry(session).or_default();
        *ends = until.max(*ends);
    }

    pub(super) fn receipt(&self, number: u64) -> Option<&Bytes> {
        self.receipts.get(usize::try_from(number.checked_sub(self.first_receipt)?).ok()?)
    }

    /// Rows from a number on, with their numbers.
    pub(super) fn rows(&self, from: u64) -> impl Iterator<Item = (u64, &Bytes)> {
        let skipped = usize::try_from(from.saturating_sub(self.first_row)).unwrap_or(usize::MAX);
        (self.first_row..).zip(&self.rows).skip(skipped)
    }

    /// Memory that its changes take, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.room.iter().map(OwnedSemaphorePermit::num_permits).sum()
    }
}

/// A generation that goes to the database, and where it stands in the journal.
#[derive(Debug, Clone)]
pub(super) struct Going {
    pub(super) generation: Arc<Generation>,
    places: Arc<Vec<Place>>,
    /// How often changes had got other places when these were read.
    pub(super) moves: u64,
}

impl Going {
    /// Its changes, and where each stands.
    pub(super) fn changes(&self) -> impl Iterator<Item = (&Change, Place)> {
        self.generation.changes.iter().zip(self.places.iter().copied())
    }

    /// The end of the last of them.
    pub(super) fn end(&self) -> Option<Position> {
        self.places.last().map(Place::after)
    }
}

/// At most two generations: one that goes to the database, and one that gathers.
#[derive(Debug, Default)]
pub(super) struct Pending {
    going: Option<(Arc<Generation>, Arc<Vec<Place>>)>,
    pub(super) gathering: Generation,
    /// Where its changes stand in the journal.
    places: Vec<Place>,
}

impl Pending {
    pub(super) fn new(gathering: Generation) -> Self {
        Self { going: None, gathering, places: Vec::new() }
    }

    pub(super) fn push(&mut self, change: Change, place: Place, room: OwnedSemaphorePermit) {
        self.gathering.push(change, room);
        self.places.push(place);
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = &Generation> {
        self.going.iter().map(|(generation, _)| &**generation).chain([&self.gathering])
    }

    /// Generations from a number on, oldest first.
    pub(super) fn since(&self, number: u64) -> impl DoubleEndedIterator<Item = &Generation> {
        self.all().filter(move |generation| generation.number >= number)
    }

    /// Changes behind a position of the journal, oldest first.
    pub(super) fn since_position(&self, position: Position) -> impl Iterator<Item = &Change> {
        let places = self.going.iter().flat_map(|(_, places)| places.iter()).chain(&self.places);
        let changes = self.all().flat_map(|generation| &generation.changes).zip(places);
        changes.filter(move |(_, place)| place.before() >= position).map(|(change, _)| change)
    }

    /// These stand somewhere else from now on.
    pub(super) fn place_again(&mut self, position: Position, places: impl Iterator<Item = Place>) {
        let going = self.going.as_mut().map(|(_, places)| Arc::make_mut(places));
        let former = going.into_iter().flatten().chain(&mut self.places);
        for (former, place) in former.filter(|place| place.before() >= position).zip(places) {
            *former = place;
        }
    }

    /// The generation after the last one with a change.
    pub(super) fn next(&self) -> u64 {
        self.gathering.number + u64::from(!self.gathering.changes.is_empty())
    }

    /// Memory that all changes take, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.all().map(Generation::bytes).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.going.is_none() && self.gathering.changes.is_empty()
    }

    /// What goes to the database next, which is what gathers unless something goes already; `None` if there is no change. `moves`
    /// says how often changes have got other places.
    pub(super) fn turn(&mut self, moves: u64) -> Option<Going> {
        if self.going.is_none() && !self.gathering.changes.is_empty() {
            let next = self.gathering.following();
            let places = Vec::with_capacity(next.changes.capacity());
            let going = std::mem::replace(&mut self.gathering, next);
            self.going = Some((Arc::new(going), Arc::new(std::mem::replace(&mut self.places, places))));
        }
        let (generation, places) = self.going.as_ref()?;
        Some(Going { generation: Arc::clone(generation), places: Arc::clone(places), moves })
    }

    /// What went to the database is there.
    pub(super) fn arrived(&mut self) {
        self.going = None;
    }
}
