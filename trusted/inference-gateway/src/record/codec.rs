//! Changes as the journal carries them. Numbers are little-endian; what has a length of its own has it before it, in
//! four bytes.

use bytes::Bytes;
use rust_decimal::Decimal;

use super::StoreError;
use super::changes::{Change, NewReceipt};
use super::tables::{NameHash, ReceiptEntry};
use crate::admission::KeyHash;

/// A finished request; before layout six, when its rows were JSON, by another number: programs of that time must not take the rows
/// for theirs.
const FINISHED: u8 = 7;
const FORMER_FINISHED: u8 = 1;
const SESSION: u8 = 2;
const FINGERPRINT: u8 = 3;
const POSTED: u8 = 4;
const SET_ASIDE: u8 = 5;
const TAKEN: u8 = 6;
/// What a finished request has.
const NO_RECEIPT: u8 = 0;
const RECEIPT: u8 = 1;
const RECEIPT_OF_SESSION: u8 = 2;

impl Change {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes());
        match self {
            Self::Finished { key, rows, cost, receipt } => {
                let needs = receipt.as_ref().map(|receipt| (receipt.session, receipt.needed_until));
                put_finished(&mut out, *key, *cost, needs);
                if let Some(receipt) = receipt {
                    put(&mut out, &receipt.entry);
                }
                for row in rows {
                    put(&mut out, row);
                }
            }
            Self::Session { name, document, ends } => {
                out.push(SESSION);
                out.extend(name);
                out.extend(ends.to_le_bytes());
                put(&mut out, document);
            }
            Self::Fingerprint { fingerprint, until } => {
                out.push(FINGERPRINT);
                out.extend(fingerprint);
                out.extend(until.to_le_bytes());
            }
            Self::Posted { next } => {
                out.push(POSTED);
                out.extend(next.to_le_bytes());
            }
            Self::SetAside { number, row } => {
                out.push(SET_ASIDE);
                out.extend(number.to_le_bytes());
                put(&mut out, row);
            }
            Self::Taken { number } => {
                out.push(TAKEN);
                out.extend(number.to_le_bytes());
            }
        }
        out
    }

    /// What has a length of its own is part of the same memory.
    pub(super) fn parse(bytes: &Bytes) -> Result<Self, StoreError> {
        let mut rest = Rest(bytes);
        let change = rest.change(|part| bytes.slice_ref(part)).filter(|_| rest.0.is_empty());
        change.ok_or_else(|| StoreError::damaged("a change in it"))
    }
}

/// Bytes that [`put_finished`] appends, at most, and the length of an entry.
pub(super) const FINISHED_BYTES: usize = 1 + 32 + 16 + 1 + 16 + 8 + LENGTH_BYTES;

/// Appends a finished request, but for the [`ReceiptEntry`] of its receipt and its rows, which are to be [`put`] behind it in this
/// order. `receipt`: its session, and until when that is needed.
pub(super) fn put_finished(
    out: &mut Vec<u8>,
    key: KeyHash,
    cost: Decimal,
    receipt: Option<(Option<NameHash>, u64)>,
) {
    out.push(FINISHED);
    out.extend_from_slice(&key.0);
    out.extend_from_slice(&cost.serialize());
    let (kind, session) = match receipt {
        None => (NO_RECEIPT, None),
        Some((None, _)) => (RECEIPT, None),
        Some((session, _)) => (RECEIPT_OF_SESSION, session),
    };
    out.push(kind);
    out.extend_from_slice(&session.unwrap_or_default());
    if let Some((_, needed_until)) = receipt {
        out.extend_from_slice(&needed_until.to_le_bytes());
    }
}

/// The receipt of a change, as [`ReceiptEntry`] writes it; `None` if it brings none.
pub(super) fn receipt(carried: &[u8]) -> Option<&[u8]> {
    let mut rest = Rest(carried);
    let [FINISHED | FORMER_FINISHED] = rest.array()? else { return None };
    let (_key, _cost): ([u8; 32], [u8; 16]) = (rest.array()?, rest.array()?);
    let ([RECEIPT | RECEIPT_OF_SESSION], _session): (_, NameHash) = (rest.array()?, rest.array()?) else {
        return None;
    };
    let _needed_until = rest.number()?;
    split_first(rest.0).map(|(receipt, _)| receipt)
}

/// Bytes of a length.
const LENGTH_BYTES: usize = 4;

/// Appends some bytes after their length.
pub(super) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    put_with(out, |out| out.extend_from_slice(bytes));
}

/// The same of what a function appends.
pub(super) fn put_with(out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    append(out);
    if let Some((length, bytes)) = out.get_mut(begin..).and_then(<[u8]>::split_first_chunk_mut) {
        *length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    }
}

/// What was [`put`] first, and what follows it.
pub(super) fn split_first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let (bytes, rest) = split_first(self.0)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A change, which keeps parts.
    fn change(&mut self, keep: impl Fn(&'a [u8]) -> Bytes) -> Option<Change> {
        let [kind] = self.array()?;
        Some(match kind {
            FINISHED | FORMER_FINISHED => {
                let (key, cost) = (KeyHash(self.array()?), Decimal::deserialize(self.array()?));
                let ([kind], session) = (self.array()?, self.array()?);
                let receipt = match kind {
                    NO_RECEIPT => None,
                    RECEIPT => Some(self.receipt(None, &keep)?),
                    RECEIPT_OF_SESSION => Some(self.receipt(Some(session), &keep)?),
                    _ => return None,
                };
                let mut rows = Vec::new();
                while !self.0.is_empty() {
                    rows.push(keep(self.bytes()?));
                }
                Change::Finished { key, rows, cost, receipt }
            }
            SESSION => {
                let (name, ends) = (self.array()?, self.number()?);
                Change::Session { name, document: keep(self.bytes()?), ends }
            }
            FINGERPRINT => Change::Fingerprint { fingerprint: self.array()?, until: self.number()? },
            POSTED => Change::Posted { next: self.number()? },
            SET_ASIDE => Change::SetAside { number: self.number()?, row: keep(self.bytes()?) },
            TAKEN => Change::Taken { number: self.number()? },
            _ => return None,
        })
    }

    fn receipt(&mut self, session: Option<NameHash>, keep: impl Fn(&'a [u8]) -> Bytes) -> Option<NewReceipt> {
        let (needed_until, entry) = (self.number()?, self.bytes()?);
        let names = ReceiptEntry::parse(entry).ok()?.names;
        Some(NewReceipt { entry: keep(entry), names, session, needed_until, record: None })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from)
    }

    prop_compose! {
        fn a_receipt()(
            names: [NameHash; 2], session: Option<NameHash>, needed_until: u64, document in bytes(),
        ) -> NewReceipt {
            let entry = ReceiptEntry { served_at: 5, names, id: b"rcpt-1", document: &document };
            NewReceipt { entry: entry.to_bytes().into(), names, session, needed_until, record: None }
        }
    }

    fn change() -> impl Strategy<Value = Change> {
        let rows = prop::collection::vec(bytes(), 0..4);
        prop_oneof![
            (any::<[u8; 32]>(), rows, any::<i64>(), prop::option::of(a_receipt())).prop_map(
                |(key, rows, cost, receipt)| Change::Finished {
                    key: KeyHash(key),
                    rows,
                    cost: Decimal::new(cost, 9),
                    receipt,
                }
            ),
            (any::<NameHash>(), bytes(), any::<u64>()).prop_map(|(name, document, ends)| Change::Session {
                name,
                document,
                ends
            }),
            (any::<[u8; 32]>(), any::<u64>())
                .prop_map(|(fingerprint, until)| Change::Fingerprint { fingerprint, until }),
            any::<u64>().prop_map(|next| Change::Posted { next }),
            (any::<u64>(), bytes()).prop_map(|(number, row)| Change::SetAside { number, row }),
            any::<u64>().prop_map(|number| Change::Taken { number }),
        ]
    }

    proptest! {
        #[test]
        fn changes_come_back(change in change()) {
            let bytes = Bytes::from(change.to_bytes());
            let brings = match &change {
                Change::Finished { receipt, .. } => receipt.as_ref().map(|receipt| &receipt.entry[..]),
                _ => None,
            };
            prop_assert_eq!(receipt(&bytes), brings);
            prop_assert_eq!(Change::parse(&bytes).unwrap(), change);
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            let bytes = Bytes::from(bytes);
            let _ = Change::parse(&bytes);
            let _ = receipt(&bytes);
        }
    }
}
