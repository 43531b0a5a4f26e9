use alloy_primitives::{Address, B256, Bytes};
use alloy_sol_types::SolCall as _;

use crate::abi::Kms;

/// A new application's contract, made by the factory of a KMS contract (platform reference, 11.2 and 11.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApp {
    /// Who alone may change it.
    pub owner: Address,
    /// Whether its code is final.
    pub disable_upgrades: bool,
    /// Whether machines must have all security updates.
    pub require_tcb_up_to_date: bool,
    /// Whether every machine will do.
    pub allow_any_device: bool,
    /// The first machine that may run it, if any.
    pub device_id: Option<B256>,
    /// The first document that may run, if any.
    pub compose_hash: Option<B256>,
}

impl NewApp {
    /// Data of the call: the form with five arguments, which every KMS contract has, unless the newer one with six
    /// is needed.
    #[must_use]
    pub fn call_data(&self) -> Bytes {
        let device_id = self.device_id.unwrap_or_default();
        let compose_hash = self.compose_hash.unwrap_or_default();
        if self.require_tcb_up_to_date {
            return Kms::deployAndRegisterApp_1Call {
                initialOwner: self.owner,
                disableUpgrades: self.disable_upgrades,
                requireTcbUpToDate: true,
                allowAnyDevice: self.allow_any_device,
                initialDeviceId: device_id,
                initialComposeHash: compose_hash,
            }
            .abi_encode()
            .into();
        }
        Kms::deployAndRegisterApp_0Call {
            initialOwner: self.owner,
            disableUpgrades: self.disable_upgrades,
            allowAnyDevice: self.allow_any_device,
            initialDeviceId: device_id,
            initialComposeHash: compose_hash,
        }
        .abi_encode()
        .into()
    }
}
