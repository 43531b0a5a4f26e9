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
                out.push(FINISHED);
                out.extend(key.0);
                out.extend(cost.serialize());
                let no_session = NameHash::default();
                let (kind, session) = match receipt {
                    None => (NO_RECEIPT, &no_session),
                    Some(NewReceipt { session: None, .. }) => (RECEIPT, &no_session),
                    Some(NewReceipt { session: Some(session), .. }) => (RECEIPT_OF_SESSION, session),
                };
                out.push(kind);
                out.extend(session);
                if let Some(receipt) = receipt {
                    out.extend(receipt.needed_until.to_le_bytes());
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

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut rest = Rest(bytes);
        let change = rest.change().filter(|_| rest.0.is_empty());
        change.ok_or_else(|| StoreError::damaged("a change in it"))
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
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(bytes);
}

/// What was [`put`] first, and what follows it.
pub(super) fn split_first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<Bytes> {
        let (bytes, rest) = split_first(self.0)?;
        self.0 = rest;
        Some(Bytes::copy_from_slice(bytes))
    }

    fn change(&mut self) -> Option<Change> {
        let [kind] = self.array()?;
        Some(match kind {
            FINISHED | FORMER_FINISHED => {
                let (key, cost) = (KeyHash(self.array()?), Decimal::deserialize(self.array()?));
                let ([kind], session) = (self.array()?, self.array()?);
                let receipt = match kind {
                    NO_RECEIPT => None,
                    RECEIPT => Some(self.receipt(None)?),
                    RECEIPT_OF_SESSION => Some(self.receipt(Some(session))?),
                    _ => return None,
                };
                let mut rows = Vec::new();
                while !self.0.is_empty() {
                    rows.push(self.bytes()?);
                }
                Change::Finished { key, rows, cost, receipt }
            }
            SESSION => {
                let (name, ends) = (self.array()?, self.number()?);
                Change::Session { name, document: self.bytes()?, ends }
            }
            FINGERPRINT => Change::Fingerprint { fingerprint: self.array()?, until: self.number()? },
            POSTED => Change::Posted { next: self.number()? },
            SET_ASIDE => Change::SetAside { number: self.number()?, row: self.bytes()? },
            TAKEN => Change::Taken { number: self.number()? },
            _ => return None,
        })
    }

    fn receipt(&mut self, session: Option<NameHash>) -> Option<NewReceipt> {
        let (needed_until, entry) = (self.number()?, self.bytes()?);
        let names = ReceiptEntry::parse(&entry).ok()?.names;
        Some(NewReceipt { entry, names, session, needed_until, record: None })
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
            let bytes = change.to_bytes();
            let brings = match &change {
                Change::Finished { receipt, .. } => receipt.as_ref().map(|receipt| &receipt.entry[..]),
                _ => None,
            };
            prop_assert_eq!(receipt(&bytes), brings);
            prop_assert_eq!(Change::parse(&bytes).unwrap(), change);
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            let _ = Change::parse(&bytes);
            let _ = receipt(&bytes);
        }
    }
}
