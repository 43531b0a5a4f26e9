//! What a transaction has to do with a question, and what the owner of a contract has to call.

use cloister_app_compose::AppId;
use cloister_contracts::abi::App;
use cloister_contracts::{B256, SolCall as _, SolEvent};

use super::{ContractReceipt, Question, ReceiptLog, Standing, app_contract};

/// What somebody writes who has no transaction to show: only the state of the contract is looked at.
const ALREADY_REGISTERED: &str = "already-registered";

/// How a change was allowed, as somebody says who wants it carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowedBy {
    /// Nobody says: the state of the contract shows it.
    State,
    /// By this transaction.
    Transaction([u8; 32]),
}

/// What was sent is no transaction hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a transaction hash has 64 hex digits, with or without 0x; leave it empty to have only the contract asked"
)]
pub(crate) struct NotATransaction;

impl AllowedBy {
    /// Reads what a request says; nothing at all is a look at the state.
    pub(crate) fn parse(text: &str) -> Result<Self, NotATransaction> {
        let text = text.trim();
        if text.is_empty() || text.eq_ignore_ascii_case(ALREADY_REGISTERED) {
            return Ok(Self::State);
        }
        let mut hash = [0; 32];
        hex::decode_to_slice(text.strip_prefix("0x").unwrap_or(text), &mut hash)
            .map_err(|_| NotATransaction)?;
        Ok(Self::Transaction(hash))
    }

    /// The transaction in hex, with `0x`.
    pub(crate) fn transaction(self) -> Option<String> {
        match self {
            Self::State => None,
            Self::Transaction(hash) => Some(format!("0x{}", hex::encode(hash))),
        }
    }
}

/// Why a transaction did not allow what is in question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unproved {
    /// It did nothing.
    #[error("the transaction was reverted: it changed nothing; send it again with what it needs")]
    Reverted,
    /// It is about something else.
    #[error("the transaction did not allow this compose hash or device at the application's contract")]
    Unrelated,
}

/// Whether a transaction allowed what is in question at the application's contract: by an event of that contract
/// that names the document, or the device, or every device. Who sent it, and through which wallets it went, does
/// not matter. A contract of the owner's own making may be silent: then it has to have been called itself.
pub(crate) fn prove(receipt: &ContractReceipt, app_id: AppId, question: &Question) -> Result<(), Unproved> {
    if !receipt.succeeded {
        return Err(Unproved::Reverted);
    }
    let contract = app_contract(app_id);
    let mut own = receipt.logs.iter().filter(|log| log.address == contract).peekable();
    let is_silent = own.peek().is_none() && receipt.to == Some(contract);
    if is_silent || own.any(|log| allows(log, question)) { Ok(()) } else { Err(Unproved::Unrelated) }
}

fn allows(log: &ReceiptLog, question: &Question) -> bool {
    let hash = decode::<App::ComposeHashAdded>(log).map(|event| event.composeHash.0);
    let device = decode::<App::DeviceAdded>(log).map(|event| event.deviceId.0);
    let any = decode::<App::AllowAnyDeviceSet>(log).is_some_and(|event| event.allowAnyDevice);
    hash == Some(*question.compose_hash.as_bytes())
        || (device.is_some() && device == question.device_id)
        || any
}

/// The event that a log entry is, if it is one of this kind.
fn decode<E: SolEvent>(log: &ReceiptLog) -> Option<E> {
    E::decode_raw_log_validate(log.topics.iter().map(|topic| B256::from(*topic)), &log.data).ok()
}

/// What the owner of an application's contract has to call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needed {
    /// Name of the function.
    pub(crate) method: &'static str,
    /// Its argument.
    pub(crate) argument: [u8; 32],
    /// What to send to the contract: selector and argument, as the ABI encodes them.
    pub(crate) calldata: Vec<u8>,
}

/// What has to be called before the answer to a question is yes; nothing when it is.
pub(crate) fn needed(question: &Question, standing: Standing) -> Vec<Needed> {
    let mut needed = Vec::new();
    if !standing.compose_hash_allowed {
        let call = App::addComposeHashCall { composeHash: B256::from(*question.compose_hash.as_bytes()) };
        let argument = *question.compose_hash.as_bytes();
        needed.push(Needed { method: "addComposeHash", argument, calldata: call.abi_encode() });
    }
    if let Some(argument) = question.device_id
        && !standing.allow_any_device
        && !standing.device_id_allowed
    {
        let call = App::addDeviceCall { deviceId: B256::from(argument) };
        needed.push(Needed { method: "addDevice", argument, calldata: call.abi_encode() });
    }
    needed
}

#[cfg(test)]
mod tests {
    use cloister_app_compose::ComposeHash;

    use super::*;
    use crate::governance::BlockRef;

    const APP: AppId = AppId::from_bytes([0xaa; 20]);
    const HASH: [u8; 32] = [1; 32];
    const DEVICE: [u8; 32] = [2; 32];

    fn question() -> Question {
        Question { compose_hash: ComposeHash::from_bytes(HASH), device_id: Some(DEVICE) }
    }

    fn log(address: u8, event: &impl SolEvent) -> ReceiptLog {
        let data = event.encode_log_data();
        let topics = data.topics().iter().map(|topic| topic.0).collect();
        ReceiptLog { address: [address; 20], topics, data: data.data.to_vec() }
    }

    fn receipt(to: u8, logs: Vec<ReceiptLog>) -> ContractReceipt {
        let block = BlockRef { number: 7, hash: [7; 32] };
        ContractReceipt { succeeded: true, from: [9; 20], to: Some([to; 20]), block, logs }
    }

    #[test]
    fn only_events_of_the_contract_about_the_question_prove_anything() {
        let hash = |seed: u8| App::ComposeHashAdded { composeHash: B256::from([seed; 32]) };
        let device = |seed: u8| App::DeviceAdded { deviceId: B256::from([seed; 32]) };
        let any = |on| App::AllowAnyDeviceSet { allowAnyDevice: on };
        let removed = App::ComposeHashRemoved { composeHash: B256::from(HASH) };
        let mut wrong_topics = log(0xaa, &hash(1));
        wrong_topics.topics.push([0; 32]);
        let mut short = log(0xaa, &hash(1));
        short.data.pop();
        for (to, logs, proved) in [
            // Called directly, and through a wallet of several people.
            (0xaa, vec![log(0xaa, &hash(1))], true),
            (0xbb, vec![log(0xbb, &hash(1)), log(0xaa, &hash(1))], true),
            (0xbb, vec![log(0xaa, &hash(3)), log(0xaa, &hash(1))], true),
            (0xaa, vec![log(0xaa, &device(2))], true),
            (0xbb, vec![log(0xaa, &any(true))], true),
            (0xaa, vec![], true),
            // Another document, another device, another contract, or the contrary.
            (0xaa, vec![log(0xaa, &hash(3))], false),
            (0xbb, vec![log(0xbb, &hash(1))], false),
            (0xaa, vec![log(0xaa, &device(3))], false),
            (0xaa, vec![log(0xaa, &any(false))], false),
            (0xaa, vec![log(0xaa, &removed)], false),
            (0xaa, vec![wrong_topics], false),
            (0xaa, vec![short], false),
            (0xbb, vec![], false),
        ] {
            let receipt = receipt(to, logs);
            assert_eq!(prove(&receipt, APP, &question()).is_ok(), proved, "{receipt:?}");
            let reverted = ContractReceipt { succeeded: false, ..receipt };
            assert_eq!(prove(&reverted, APP, &question()), Err(Unproved::Reverted));
        }
        // Without a device in question no device is an answer to it.
        let any_device = Question { device_id: None, ..question() };
        assert!(prove(&receipt(0xaa, vec![log(0xaa, &device(2))]), APP, &any_device).is_err());
    }

    #[test]
    fn what_has_to_be_called_is_told_as_it_is_sent() {
        let standing = |hash, device, any| Standing {
            compose_hash_allowed: hash,
            device_id_allowed: device,
            allow_any_device: any,
        };
        let calls = |standing: Standing| {
            let calls = needed(&question(), standing);
            calls.into_iter().map(|call| hex::encode(call.calldata)).collect::<Vec<_>>()
        };
        let (add_hash, add_device) =
            (format!("dfc77223{}", hex::encode(HASH)), format!("2a819728{}", hex::encode(DEVICE)));
        assert_eq!(calls(standing(false, false, false)), [add_hash.clone(), add_device.clone()]);
        assert_eq!(calls(standing(false, true, false)), [add_hash]);
        assert_eq!(calls(standing(true, false, false)), [add_device]);
        assert!(
            calls(standing(true, false, true)).is_empty() && calls(standing(true, true, false)).is_empty()
        );
    }

    #[test]
    fn transactions_are_read_in_every_spelling() {
        let hash = "aB".repeat(32);
        for text in [hash.clone(), format!("0x{hash}"), format!(" 0x{hash} ")] {
            assert_eq!(AllowedBy::parse(&text), Ok(AllowedBy::Transaction([0xab; 32])), "{text}");
        }
        for text in ["", " ", "already-registered", "Already-Registered"] {
            assert_eq!(AllowedBy::parse(text), Ok(AllowedBy::State), "{text}");
        }
        for text in ["0x", "ab", &hash[1..], &format!("{hash}ab"), "not a hash"] {
            assert_eq!(AllowedBy::parse(text), Err(NotATransaction), "{text}");
        }
    }
}
