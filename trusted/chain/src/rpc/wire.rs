//! Values of the Ethereum JSON-RPC interface: quantities and bytes are text, `0x` and hexadecimal digits.

use std::fmt;

use alloy_primitives::{Address, B256};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::Bounded;
use crate::answers::{BlockRef, Log, Receipt};
use crate::error::Failure;
use crate::reader::MAX_LOGS;

/// Most topics of a log entry, by the rules of the chain.
const MAX_TOPICS: usize = 4;

/// Text that is no value of the interface.
#[derive(Debug)]
pub(crate) struct NotHex;

/// The bytes that `text` stands for.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, NotHex> {
    hex::decode(text.strip_prefix("0x").ok_or(NotHex)?).map_err(|_| NotHex)
}

fn quantity(text: &str) -> Result<u128, NotHex> {
    let digits = text.strip_prefix("0x").ok_or(NotHex)?;
    if digits.starts_with('+') {
        return Err(NotHex);
    }
    u128::from_str_radix(digits, 16).map_err(|_| NotHex)
}

/// `number` as the interface writes it.
pub(crate) fn hexadecimal(number: impl fmt::LowerHex) -> String {
    format!("{number:#x}")
}

/// A block as a parameter: by hash, and only if it is part of the chain as it is now (EIP-1898).
pub(crate) fn exactly(block: &BlockRef) -> Value {
    json!({"blockHash": block.hash.to_string(), "requireCanonical": true})
}

struct Text<T>(fn(&str) -> Result<T, NotHex>);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x and hexadecimal digits")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(|NotHex| E::custom("not a value of the interface"))
    }
}

macro_rules! from_text {
    ($(#[$doc:meta])* $name:ident($inner:ty), $read:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text($read)).map(Self)
            }
        }
    };
}

from_text!(
    /// A number.
    Quantity(u64), |text| quantity(text)?.try_into().map_err(|_| NotHex)
);
from_text!(
    /// A number that may be an amount of money.
    Amount(u128), quantity
);
from_text!(
    /// 32 bytes.
    Word(B256), |text| B256::try_from(bytes(text)?.as_slice()).map_err(|_| NotHex)
);
from_text!(
    /// An account.
    Account(Address), |text| Address::try_from(bytes(text)?.as_slice()).map_err(|_| NotHex)
);
from_text!(
    /// Any bytes.
    Data(Vec<u8>), bytes
);

/// Reads the text of an answer.
pub(crate) fn read<'a, T: Deserialize<'a>>(item: &'a str, what: &'static str) -> Result<T, Failure> {
    serde_json::from_str(item).map_err(|_| Failure::Garbage(what))
}

#[derive(Deserialize)]
struct Header {
    number: Quantity,
    hash: Word,
    timestamp: Quantity,
    #[serde(rename = "baseFeePerGas", default)]
    base_fee: Option<Amount>,
}

/// The header in `item`; `None` for a block that the node does not have.
pub(crate) fn header(item: &str) -> Result<Option<BlockRef>, Failure> {
    Ok(read::<Option<Header>>(item, "a block")?.map(|header| BlockRef {
        number: header.number.0,
        hash: header.hash.0,
        timestamp: header.timestamp.0,
    }))
}

/// The base fee, in wei for each unit of gas, of the block in `item`.
pub(crate) fn base_fee(item: &str) -> Result<u128, Failure> {
    let header: Header = read(item, "a block")?;
    header.base_fee.map(|fee| fee.0).ok_or(Failure::Garbage("a block without base fee (EIP-1559)"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReceipt {
    transaction_hash: Word,
    #[serde(default)]
    block_number: Option<Quantity>,
    #[serde(default)]
    block_hash: Option<Word>,
    status: Quantity,
    from: Account,
    #[serde(default)]
    to: Option<Account>,
    #[serde(default)]
    contract_address: Option<Account>,
    logs: Bounded<WireLog, MAX_LOGS>,
}

#[derive(Deserialize)]
struct WireLog {
    address: Account,
    topics: Bounded<Word, MAX_TOPICS>,
    data: Data,
    #[serde(default)]
    removed: bool,
}

/// The receipt of `transaction` in `item`; `None` while it is in no block. Confirmations and the block's time are not
/// part of it, and zero.
pub(crate) fn receipt(item: &str, transaction: B256) -> Result<Option<Receipt>, Failure> {
    let Some(receipt) = read::<Option<WireReceipt>>(item, "a receipt")? else { return Ok(None) };
    let (Some(number), Some(hash)) = (receipt.block_number, receipt.block_hash) else { return Ok(None) };
    if receipt.transaction_hash.0 != transaction {
        return Err(Failure::Garbage("a receipt of another transaction"));
    }
    let succeeded = match receipt.status.0 {
        0 => false,
        1 => true,
        _ => return Err(Failure::Garbage("a receipt without a clear status")),
    };
    if receipt.logs.0.iter().any(|log| log.removed) {
        return Ok(None);
    }
    Ok(Some(Receipt {
        transaction,
        succeeded,
        from: receipt.from.0,
        to: receipt.to.map(|to| to.0),
        contract_address: receipt.contract_address.map(|made| made.0),
        block: BlockRef { number: number.0, hash: hash.0, timestamp: 0 },
        confirmations: 0,
        logs: receipt.logs.0.into_iter().map(Log::from).collect(),
    }))
}

impl From<WireLog> for Log {
    fn from(log: WireLog) -> Self {
        Self {
            address: log.address.0,
            topics: log.topics.0.into_iter().map(|topic| topic.0).collect(),
            data: log.data.0.into(),
        }
    }
}

/// Bytes in `item`.
pub(crate) fn data(item: &str) -> Result<Vec<u8>, Failure> {
    read::<Data>(item, "bytes").map(|data| data.0)
}

/// The number in `item`.
pub(crate) fn number(item: &str) -> Result<u64, Failure> {
    read::<Quantity>(item, "a number").map(|number| number.0)
}

/// The amount in `item`.
pub(crate) fn amount(item: &str) -> Result<u128, Failure> {
    read::<Amount>(item, "an amount").map(|amount| amount.0)
}

/// The 32 bytes in `item`.
pub(crate) fn word(item: &str) -> Result<B256, Failure> {
    read::<Word>(item, "a hash").map(|word| word.0)
}

/// The accounts in `item`.
pub(crate) fn accounts(item: &str) -> Result<Vec<Address>, Failure> {
    let accounts: Bounded<Account, 256> = read(item, "accounts")?;
    Ok(accounts.0.into_iter().map(|account| account.0).collect())
}
