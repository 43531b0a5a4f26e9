//! Calls of contracts, as they are sent and as people read them.

use cloister_app_compose::ComposeHash;
use cloister_chain::{Address, B256, Bytes, Transaction};
use cloister_contracts::abi::{App, Kms, Owned};
use cloister_contracts::{NewApp, SolCall, compose_word};
use serde_json::{Value, json};

/// A transaction that somebody has to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// The contract that is called; nobody where one is made.
    pub(crate) to: Option<Address>,
    /// Function and arguments, as people write them.
    pub(crate) words: String,
    /// The same for the chain.
    pub(crate) data: Bytes,
}

impl Call {
    /// A call whose words name its arguments.
    pub(crate) fn new<C: SolCall>(to: Address, call: &C, arguments: &[String]) -> Self {
        let name = C::SIGNATURE.split('(').next().unwrap_or_default();
        Self {
            to: Some(to),
            words: format!("{name}({})", arguments.join(", ")),
            data: call.abi_encode().into(),
        }
    }

    /// The creation of a contract.
    pub(crate) fn create(what: &str, code: Bytes) -> Self {
        Self { to: None, words: format!("create {what}"), data: code }
    }

    /// What is sent.
    pub(crate) fn transaction(&self) -> Transaction {
        match self.to {
            Some(to) => Transaction::call(to, self.data.clone()),
            None => Transaction::create(self.data.clone()),
        }
    }

    /// What is called, without arguments.
    pub(crate) fn name(&self) -> &str {
        self.words.split('(').next().unwrap_or(&self.words)
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        self.to.map_or_else(|| self.words.clone(), |to| format!("{to}: {}", self.words))
    }

    /// For wallets of several people, which take destination, value and data.
    pub(crate) fn document(&self) -> Value {
        json!({ "to": self.to.map(|to| to.to_string()), "value": "0", "method": self.words, "data": self.data.to_string() })
    }
}

/// Lets an application run a document.
pub(crate) fn allow_hash(app: Address, hash: ComposeHash) -> Call {
    let word = compose_word(hash);
    Call::new(app, &App::addComposeHashCall { composeHash: word }, &[word.to_string()])
}

/// Takes that back.
pub(crate) fn remove_hash(app: Address, hash: ComposeHash) -> Call {
    let word = compose_word(hash);
    Call::new(app, &App::removeComposeHashCall { composeHash: word }, &[word.to_string()])
}

/// Lets an application run on a device.
pub(crate) fn allow_device(app: Address, device: B256) -> Call {
    Call::new(app, &App::addDeviceCall { deviceId: device }, &[device.to_string()])
}

/// Takes that back.
pub(crate) fn remove_device(app: Address, device: B256) -> Call {
    Call::new(app, &App::removeDeviceCall { deviceId: device }, &[device.to_string()])
}

/// Lets an application run on every device, or on those of its list only.
pub(crate) fn any_device(app: Address, is_allowed: bool) -> Call {
    Call::new(app, &App::setAllowAnyDeviceCall { allowAnyDevice: is_allowed }, &[is_allowed.to_string()])
}

/// A new application at a KMS contract.
pub(crate) fn new_app(kms_contract: Address, app: &NewApp) -> Call {
    let word = |word: Option<B256>| word.map_or_else(|| "none".to_owned(), |word| word.to_string());
    let words = format!(
        "deployAndRegisterApp(owner {}, first document {}, first device {}{}{}{})",
        app.owner,
        word(app.compose_hash),
        word(app.device_id),
        if app.allow_any_device { ", any device" } else { "" },
        if app.require_tcb_up_to_date { ", up-to-date platforms only" } else { "" },
        if app.disable_upgrades { ", code final" } else { "" },
    );
    Call { to: Some(kms_contract), words, data: app.call_data() }
}

/// Lets machines with a guest image have keys.
pub(crate) fn allow_image(kms: Address, image: B256) -> Call {
    Call::new(kms, &Kms::addOsImageHashCall { osImageHash: image }, &[image.to_string()])
}

/// Takes that back.
pub(crate) fn remove_image(kms: Address, image: B256) -> Call {
    Call::new(kms, &Kms::removeOsImageHashCall { osImageHash: image }, &[image.to_string()])
}

/// Lets a KMS with these measurements have the roots.
pub(crate) fn allow_kms(kms: Address, measurement: B256) -> Call {
    Call::new(kms, &Kms::addKmsAggregatedMrCall { mrAggregated: measurement }, &[measurement.to_string()])
}

/// Takes that back.
pub(crate) fn remove_kms(kms: Address, measurement: B256) -> Call {
    Call::new(kms, &Kms::removeKmsAggregatedMrCall { mrAggregated: measurement }, &[measurement.to_string()])
}

/// Lets a KMS run on a device.
pub(crate) fn allow_kms_device(kms: Address, device: B256) -> Call {
    Call::new(kms, &Kms::addKmsDeviceCall { deviceId: device }, &[device.to_string()])
}

/// Takes that back.
pub(crate) fn remove_kms_device(kms: Address, device: B256) -> Call {
    Call::new(kms, &Kms::removeKmsDeviceCall { deviceId: device }, &[device.to_string()])
}

/// Publishes the keys of the KMS that a contract stands for.
pub(crate) fn publish_keys(kms: Address, info: cloister_contracts::KmsInfo) -> Call {
    let words = [format!("root 0x{}", hex::encode(&info.k256Pubkey))];
    Call::new(kms, &Kms::setKmsInfoCall { info }, &words)
}

/// Offers a contract to another owner.
pub(crate) fn transfer_owner(contract: Address, to: Address) -> Call {
    Call::new(contract, &Owned::transferOwnershipCall { newOwner: to }, &[to.to_string()])
}

/// Takes a contract over that was offered.
pub(crate) fn accept_owner(contract: Address) -> Call {
    Call::new(contract, &Owned::acceptOwnershipCall {}, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_read_is_what_is_sent() {
        let app = Address::repeat_byte(0xaa);
        let call = allow_hash(app, ComposeHash::from_bytes([0x11; 32]));
        assert_eq!(call.line(), format!("{app}: addComposeHash(0x{})", "11".repeat(32)));
        // Selector of the public interface, then the word.
        assert_eq!(call.data.to_string(), format!("0xdfc77223{}", "11".repeat(32)));
        assert_eq!(any_device(app, true).words, "setAllowAnyDevice(true)");
        assert_eq!(accept_owner(app).data.to_string(), "0x79ba5097");
        assert_eq!(call.document()["to"], app.to_string());
    }
}
