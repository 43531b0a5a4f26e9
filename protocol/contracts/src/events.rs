//! Events of the contracts, from the logs of a receipt (platform reference, 11.3).

use alloy_primitives::{Address, B256, IntoLogData, keccak256};
use alloy_sol_types::SolEventInterface;

use crate::abi::App::AppEvents;
use crate::abi::Kms::KmsEvents;
use crate::abi::Owned::OwnedEvents;

/// Most topics that the machine gives an event.
const MAX_TOPICS: usize = 4;
/// Longest data of an event that is looked at, in bytes.
const MAX_DATA_BYTES: usize = 64 * 1024;

/// One log of a receipt.
#[derive(Debug, Clone, Copy)]
pub struct Log<'a> {
    /// The contract that emitted it. Any contract can emit anything: look at this first.
    pub address: Address,
    /// Hash of the declaration, then the indexed arguments.
    pub topics: &'a [B256],
    /// The other arguments.
    pub data: &'a [u8],
}

/// An event of the public interface.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Of an application's contract.
    App(AppEvents),
    /// Of a KMS contract.
    Kms(KmsEvents),
    /// Of either: owner, code, and what changed.
    Owned(OwnedEvents),
}

/// The log is none of the public interface, or not one that Solidity would write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log is no event of the contracts")]
pub struct UnknownLog;

/// Reads a log. Refuses what is not, byte for byte, what the contracts would have written.
pub fn decode_event(log: Log<'_>) -> Result<Event, UnknownLog> {
    if log.topics.len() > MAX_TOPICS || log.data.len() > MAX_DATA_BYTES {
        return Err(UnknownLog);
    }
    exactly::<AppEvents>(log)
        .map(Event::App)
        .or_else(|| exactly::<KmsEvents>(log).map(Event::Kms))
        .or_else(|| exactly::<OwnedEvents>(log).map(Event::Owned))
        .ok_or(UnknownLog)
}

/// An application that a KMS contract's factory made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeployedApp {
    /// Its address, never zero.
    pub app: Address,
    /// Who called the factory, never zero.
    pub deployer: Address,
}

/// The applications that the factory of `kms_contract` made, in order. Events of other contracts count nothing.
pub fn deployed_apps<'a>(
    logs: impl IntoIterator<Item = Log<'a>>,
    kms_contract: Address,
) -> impl Iterator<Item = DeployedApp> {
    logs.into_iter().filter(move |log| log.address == kms_contract).filter_map(|log| {
        match decode_event(log) {
            Ok(Event::Kms(KmsEvents::AppDeployedViaFactory(event))) => {
                let made = DeployedApp { app: event.appId, deployer: event.deployer };
                (!made.app.is_zero() && !made.deployer.is_zero()).then_some(made)
            }
            _ => None,
        }
    })
}

/// Whether the contract of `app` said that it now allows `compose_hash`. What holds is what the chain says when it
/// is asked: a later log may have taken it back.
pub fn allows_compose_hash<'a>(
    logs: impl IntoIterator<Item = Log<'a>>,
    app: Address,
    compose_hash: B256,
) -> bool {
    logs.into_iter().filter(|log| log.address == app).any(|log| {
        matches!(decode_event(log), Ok(Event::App(AppEvents::ComposeHashAdded(event))) if event.composeHash == compose_hash)
    })
}

/// Names of policies in `PolicyChanged`, by contract: what `value` is.
pub const POLICIES: [(&str, PolicyValue); 13] = [
    ("compose-hash", PolicyValue::Word),
    ("device", PolicyValue::Word),
    ("allow-any-device", PolicyValue::None),
    ("require-tcb-up-to-date", PolicyValue::None),
    ("upgrades-disabled", PolicyValue::None),
    ("implementation-upgrade", PolicyValue::Address),
    ("kms-info", PolicyValue::Hash),
    ("gateway-app-id", PolicyValue::Hash),
    ("registered-app", PolicyValue::Address),
    ("app-implementation", PolicyValue::Address),
    ("kms-aggregated-mr", PolicyValue::Word),
    ("kms-device", PolicyValue::Word),
    ("os-image", PolicyValue::Word),
];

/// What the value of a changed policy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyValue {
    /// There is but one: zero.
    None,
    /// The word itself.
    Word,
    /// An address.
    Address,
    /// Keccak-256 of something longer.
    Hash,
}

/// The name whose hash `policy` is.
#[must_use]
pub fn policy_name(policy: B256) -> Option<&'static str> {
    POLICIES.iter().map(|(name, _)| *name).find(|name| keccak256(name) == policy)
}

/// The event, if writing it again gives the same log.
fn exactly<E: SolEventInterface + IntoLogData>(log: Log<'_>) -> Option<E> {
    let event = E::decode_raw_log(log.topics, log.data).ok()?;
    let written = event.to_log_data();
    (written.topics() == log.topics && written.data.as_ref() == log.data).then_some(event)
}
