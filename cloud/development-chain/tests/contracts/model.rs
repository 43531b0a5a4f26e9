//! What the contract of an application must do, in a few lines.

use std::collections::BTreeSet;

use cloister_contracts::abi::App::{self, AppEvents};
use cloister_contracts::abi::Owned::{self, OwnedEvents};
use cloister_contracts::events::Event;
use cloister_contracts::{Address, B256, Bytes, SolCall as _};
use proptest::prelude::*;

use crate::node::account;

/// Accounts that act.
pub(crate) const PEOPLE: usize = 4;
/// Documents, machines and images that there are; number 0 is the zero word, which is none.
pub(crate) const WORDS: u8 = 4;

/// A call to the contract of an application.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    AddHash(u8),
    RemoveHash(u8),
    AddDevice(u8),
    RemoveDevice(u8),
    AllowAnyDevice(bool),
    RequireTcb(bool),
    Transfer(usize),
    Accept,
    Renounce,
    Upgrade(usize),
    DisableUpgrades,
    Initialize,
}

/// Everything that the contract remembers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Model {
    pub(crate) owner: Option<Address>,
    pub(crate) pending: Option<Address>,
    pub(crate) hashes: BTreeSet<B256>,
    pub(crate) devices: BTreeSet<B256>,
    pub(crate) any_device: bool,
    pub(crate) require_tcb: bool,
    pub(crate) is_final: bool,
    pub(crate) implementation: Address,
}

/// `renounceOwnership()`, which is the library's.
const RENOUNCE: [u8; 4] = [0x71, 0x50, 0x18, 0xa6];

/// The word number `index`; 0 is zero.
pub(crate) fn word(index: u8) -> B256 {
    B256::repeat_byte(index)
}

/// Mostly what owners do every day; seldom what cannot be undone.
pub(crate) fn actions() -> impl Strategy<Value = Action> {
    let word = || 0..WORDS;
    prop_oneof![
        6 => word().prop_map(Action::AddHash),
        4 => word().prop_map(Action::RemoveHash),
        6 => word().prop_map(Action::AddDevice),
        4 => word().prop_map(Action::RemoveDevice),
        4 => any::<bool>().prop_map(Action::AllowAnyDevice),
        4 => any::<bool>().prop_map(Action::RequireTcb),
        4 => (0..PEOPLE).prop_map(Action::Transfer),
        4 => Just(Action::Accept),
        1 => Just(Action::Renounce),
        3 => (0..2usize).prop_map(Action::Upgrade),
        1 => Just(Action::DisableUpgrades),
        1 => Just(Action::Initialize),
    ]
}

impl Action {
    /// How many events say that it was done.
    pub(crate) const fn events(&self) -> usize {
        match self {
            // The library's word.
            Self::Transfer(_) | Self::Accept | Self::Renounce => 1,
            // What was done, and the record of it.
            _ => 2,
        }
    }

    /// The data of the call; an upgrade leads to one of `implementations`.
    pub(crate) fn call_data(&self, implementations: [Address; 2]) -> Vec<u8> {
        match *self {
            Self::AddHash(index) => App::addComposeHashCall { composeHash: word(index) }.abi_encode(),
            Self::RemoveHash(index) => App::removeComposeHashCall { composeHash: word(index) }.abi_encode(),
            Self::AddDevice(index) => App::addDeviceCall { deviceId: word(index) }.abi_encode(),
            Self::RemoveDevice(index) => App::removeDeviceCall { deviceId: word(index) }.abi_encode(),
            Self::AllowAnyDevice(any) => App::setAllowAnyDeviceCall { allowAnyDevice: any }.abi_encode(),
            Self::RequireTcb(on) => App::setRequireTcbUpToDateCall { requireTcbUpToDate: on }.abi_encode(),
            Self::Transfer(to) => Owned::transferOwnershipCall { newOwner: account(to) }.abi_encode(),
            Self::Accept => Owned::acceptOwnershipCall {}.abi_encode(),
            Self::Renounce => RENOUNCE.to_vec(),
            Self::Upgrade(to) => {
                Owned::upgradeToAndCallCall { newImplementation: implementations[to], data: Bytes::new() }
                    .abi_encode()
            }
            Self::DisableUpgrades => App::disableUpgradesCall {}.abi_encode(),
            Self::Initialize => initialize(account(3)),
        }
    }
}

/// The initialisation of an application that allows everything.
pub(crate) fn initialize(owner: Address) -> Vec<u8> {
    App::initialize_1Call {
        initialOwner: owner,
        disableUpgrades: false,
        requireTcbUpToDate: false,
        allowAnyDevice: true,
        initialDeviceId: B256::ZERO,
        initialComposeHash: word(1),
    }
    .abi_encode()
}

impl Model {
    /// What happens when `who` does `action`; gives whether anything does.
    pub(crate) fn act(&mut self, who: Address, action: &Action, implementations: [Address; 2]) -> bool {
        if matches!(action, Action::Accept) {
            let accepts = self.pending == Some(who);
            if accepts {
                (self.owner, self.pending) = (Some(who), None);
            }
            return accepts;
        }
        if self.owner != Some(who) {
            return false;
        }
        match *action {
            Action::AddHash(0) | Action::AddDevice(0) | Action::Initialize | Action::Accept => return false,
            Action::AddHash(index) => drop(self.hashes.insert(word(index))),
            Action::RemoveHash(index) => drop(self.hashes.remove(&word(index))),
            Action::AddDevice(index) => drop(self.devices.insert(word(index))),
            Action::RemoveDevice(index) => drop(self.devices.remove(&word(index))),
            Action::AllowAnyDevice(any) => self.any_device = any,
            Action::RequireTcb(on) => self.require_tcb = on,
            Action::Transfer(to) => self.pending = Some(account(to)),
            Action::Renounce => (self.owner, self.pending) = (None, None),
            Action::Upgrade(_) if self.is_final => return false,
            Action::Upgrade(to) => self.implementation = implementations[to],
            Action::DisableUpgrades => self.is_final = true,
        }
        true
    }

    /// The same, learnt from what the contract said about it.
    pub(crate) fn hear(&mut self, event: &Event) {
        let not_zero = |address: Address| (!address.is_zero()).then_some(address);
        match event {
            Event::App(AppEvents::ComposeHashAdded(event)) => drop(self.hashes.insert(event.composeHash)),
            Event::App(AppEvents::ComposeHashRemoved(event)) => drop(self.hashes.remove(&event.composeHash)),
            Event::App(AppEvents::DeviceAdded(event)) => drop(self.devices.insert(event.deviceId)),
            Event::App(AppEvents::DeviceRemoved(event)) => drop(self.devices.remove(&event.deviceId)),
            Event::App(AppEvents::AllowAnyDeviceSet(event)) => self.any_device = event.allowAnyDevice,
            Event::App(AppEvents::RequireTcbUpToDateSet(event)) => {
                self.require_tcb = event.requireTcbUpToDate;
            }
            Event::App(AppEvents::UpgradesDisabled(_)) => self.is_final = true,
            Event::Owned(OwnedEvents::OwnershipTransferStarted(event)) => {
                self.pending = not_zero(event.newOwner);
            }
            Event::Owned(OwnedEvents::OwnershipTransferred(event)) => {
                (self.owner, self.pending) = (not_zero(event.newOwner), None);
            }
            Event::Owned(OwnedEvents::Upgraded(event)) => self.implementation = event.implementation,
            Event::Owned(OwnedEvents::PolicyChanged(_)) => {}
            Event::Kms(event) => panic!("an application says {event:?}"),
        }
    }

    /// Why the application may not have its keys, if it may not; `image` says whether the KMS allows the image.
    pub(crate) fn refusal(&self, image: bool, up_to_date: bool, hash: B256, device: B256) -> &'static str {
        let checks = [
            (image, "OS image is not allowed"),
            (!self.require_tcb || up_to_date, "TCB status is not up to date"),
            (self.hashes.contains(&hash), "Compose hash not allowed"),
            (self.any_device || self.devices.contains(&device), "Device not allowed"),
        ];
        checks.into_iter().find(|(holds, _)| !holds).map_or("", |(_, reason)| reason)
    }
}
