//! Contracts of tests: a chain that is a table.

use std::collections::{BTreeMap, BTreeSet};

use cloister_app_compose::{AppId, ComposeHash};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::{
    Address, AppContract, CannotTell, ContractReceipt, Contracts, KmsContractView, KmsQuestion, KnownChain,
    PublishedKeys, Question, Standing, app_contract,
};
use crate::kms::KmsContract;

/// The only chain that there is.
pub(crate) const CHAIN: u64 = 31337;
/// The contract of the key management service.
pub(crate) const KMS_CONTRACT: KmsContract = KmsContract { chain_id: CHAIN, address: [0xcc; 20] };
/// Who owns the contracts unless a test says otherwise.
pub(crate) const OWNER: Address = [0x0e; 20];

/// Answers from a table, in the place of a chain.
#[derive(Default)]
pub(crate) struct FakeContracts(Mutex<Table>);

#[derive(Default)]
struct Table {
    apps: BTreeMap<AppId, FakeApp>,
    kms: KmsLists,
    receipts: BTreeMap<[u8; 32], ContractReceipt>,
    safes: BTreeSet<Address>,
    down: Option<String>,
    round_trips: usize,
}

struct FakeApp {
    view: AppContract,
    hashes: BTreeSet<ComposeHash>,
    devices: BTreeSet<[u8; 32]>,
}

#[derive(Default)]
struct KmsLists {
    keys: Option<PublishedKeys>,
    gateway_app_id: String,
    devices: BTreeSet<[u8; 32]>,
    os_images: BTreeSet<[u8; 32]>,
    aggregated_mrs: BTreeSet<[u8; 32]>,
}

impl FakeContracts {
    /// Somebody deploys the contract of an application and registers it; it allows nothing yet.
    pub(crate) fn deploy(&self, app_id: AppId) {
        let view = AppContract {
            is_registered: true,
            owner: Some(OWNER),
            owner_is_contract: false,
            allow_any_device: Some(false),
        };
        let app = FakeApp { view, hashes: BTreeSet::new(), devices: BTreeSet::new() };
        self.0.lock().apps.insert(app_id, app);
    }

    /// Changes what the contract of an application says about itself.
    pub(crate) fn describe(&self, app_id: AppId, change: impl FnOnce(&mut AppContract)) {
        change(&mut self.0.lock().apps.get_mut(&app_id).unwrap().view);
    }

    /// The owner allows a document.
    pub(crate) fn add_hash(&self, app_id: AppId, hash: ComposeHash) {
        self.0.lock().apps.get_mut(&app_id).unwrap().hashes.insert(hash);
    }

    /// The owner takes that back.
    pub(crate) fn remove_hash(&self, app_id: AppId, hash: ComposeHash) {
        self.0.lock().apps.get_mut(&app_id).unwrap().hashes.remove(&hash);
    }

    /// The owner allows a device.
    pub(crate) fn add_device(&self, app_id: AppId, device_id: [u8; 32]) {
        self.0.lock().apps.get_mut(&app_id).unwrap().devices.insert(device_id);
    }

    /// The owner takes that back.
    pub(crate) fn remove_device(&self, app_id: AppId, device_id: [u8; 32]) {
        self.0.lock().apps.get_mut(&app_id).unwrap().devices.remove(&device_id);
    }

    /// The contract of the key management service publishes these.
    pub(crate) fn publish(&self, keys: PublishedKeys, gateway_app_id: &str) {
        let kms = &mut self.0.lock().kms;
        (kms.keys, kms.gateway_app_id) = (Some(keys), gateway_app_id.to_owned());
    }

    /// The contract of the key management service allows these.
    pub(crate) fn allow_for_kms(&self, question: KmsQuestion) {
        let kms = &mut self.0.lock().kms;
        kms.devices.extend(question.devices);
        kms.os_images.extend(question.os_images);
        kms.aggregated_mrs.extend(question.aggregated_mrs);
    }

    /// There is a wallet of several people at an address.
    pub(crate) fn make_safe(&self, account: Address) {
        self.0.lock().safes.insert(account);
    }

    /// A transaction is in a confirmed block.
    pub(crate) fn mine(&self, transaction: [u8; 32], receipt: ContractReceipt) {
        self.0.lock().receipts.insert(transaction, receipt);
    }

    /// From now on the chain cannot be asked, or can be again.
    pub(crate) fn set_down(&self, why: Option<&str>) {
        self.0.lock().down = why.map(str::to_owned);
    }

    /// How often the chain was asked.
    pub(crate) fn round_trips(&self) -> usize {
        self.0.lock().round_trips
    }

    fn ask<T>(
        &self,
        chain_id: u64,
        answer: impl FnOnce(&Table) -> Result<T, CannotTell>,
    ) -> Result<T, CannotTell> {
        let mut table = self.0.lock();
        if chain_id != CHAIN {
            return Err(CannotTell::UnknownChain(chain_id));
        }
        table.round_trips += 1;
        match &table.down {
            Some(why) => Err(CannotTell::Chain(why.clone())),
            None => answer(&table),
        }
    }
}

impl Table {
    fn app(&self, app_id: AppId) -> Result<&FakeApp, CannotTell> {
        let missing = CannotTell::NoContract { chain_id: CHAIN, address: app_contract(app_id) };
        self.apps.get(&app_id).ok_or(missing)
    }
}

impl FakeApp {
    fn standing(&self, question: &Question) -> Standing {
        Standing {
            compose_hash_allowed: self.hashes.contains(&question.compose_hash),
            device_id_allowed: question.device_id.is_some_and(|id| self.devices.contains(&id)),
            allow_any_device: self.view.allow_any_device == Some(true),
        }
    }
}

impl KmsLists {
    fn view(&self, asked: &KmsQuestion) -> KmsContractView {
        let of = |asked: &[[u8; 32]], list: &BTreeSet<[u8; 32]>| {
            asked.iter().map(|one| list.contains(one)).collect()
        };
        KmsContractView {
            owner: Some(OWNER),
            keys: self.keys.clone(),
            gateway_app_id: self.gateway_app_id.clone(),
            devices: of(&asked.devices, &self.devices),
            os_images: of(&asked.os_images, &self.os_images),
            aggregated_mrs: of(&asked.aggregated_mrs, &self.aggregated_mrs),
        }
    }
}

impl Contracts for FakeContracts {
    fn chains(&self) -> Vec<KnownChain> {
        vec![KnownChain { id: CHAIN, name: "development".to_owned() }]
    }

    fn app(&self, kms: KmsContract, app_id: AppId) -> BoxFuture<'_, Result<AppContract, CannotTell>> {
        let answer = self.ask(kms.chain_id, |table| Ok(table.app(app_id)?.view.clone()));
        Box::pin(async move { answer })
    }

    fn kms(
        &self,
        contract: KmsContract,
        question: KmsQuestion,
    ) -> BoxFuture<'_, Result<KmsContractView, CannotTell>> {
        let KmsContract { chain_id, address } = contract;
        let answer = self.ask(chain_id, |table| match contract {
            KMS_CONTRACT => Ok(table.kms.view(&question)),
            _ => Err(CannotTell::NoContract { chain_id, address }),
        });
        Box::pin(async move { answer })
    }

    fn standings(
        &self,
        chain_id: u64,
        app_id: AppId,
        questions: Vec<Question>,
    ) -> BoxFuture<'_, Result<Vec<Standing>, CannotTell>> {
        let answer = self.ask(chain_id, |table| {
            let app = table.app(app_id)?;
            Ok(questions.iter().map(|question| app.standing(question)).collect())
        });
        Box::pin(async move { answer })
    }

    fn is_safe(&self, chain_id: u64, account: Address) -> BoxFuture<'_, Result<bool, CannotTell>> {
        let answer = self.ask(chain_id, |table| Ok(table.safes.contains(&account)));
        Box::pin(async move { answer })
    }

    fn receipt(
        &self,
        chain_id: u64,
        transaction: [u8; 32],
    ) -> BoxFuture<'_, Result<Option<ContractReceipt>, CannotTell>> {
        let answer = self.ask(chain_id, |table| Ok(table.receipts.get(&transaction).cloned()));
        Box::pin(async move { answer })
    }
}
