//! A development chain beside a cloud on this machine: a real EVM node with the contracts on it, whose keys are public.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use cloister_chain::{Address, ChainConfig, Clock, KmsContractView, Signer};
use cloister_development_chain::{ACCOUNTS, CHAIN_ID, Config, DevelopmentChain, StartError};
use cloister_management_api::{KmsInspection, KmsMachine};
use serde_json::json;

use super::kms::Governed;
use crate::api::{Client, read};
use crate::commands::chain::{
    Account, Call, NETWORK_FILE, Network, Published, allow_image, allow_kms, allow_kms_device, publish_keys,
};
use crate::failure::{Exit, Failure};

/// Its directory in that of the cloud; the KMS of its contract is in there, too.
pub(crate) const DIRECTORY: &str = "chain";
/// Name of the KMS that the contract decides for.
pub(crate) const SLUG: &str = "contract";
/// Key of the account that owns the contract of the KMS.
const OPERATOR_KEY: &str = "operator.key";
/// Key of another account, which owns the contracts of examples.
const OWNER_KEY: &str = "owner.key";
/// Endpoints of the chain, for the KMS.
const ENDPOINTS: &str = "endpoints";
/// The file that says an image's hash.
const IMAGE_HASH: &str = "digest.txt";

/// A running development chain.
#[derive(Debug)]
pub(crate) struct ChainPart {
    dir: PathBuf,
    network_file: PathBuf,
    chain: DevelopmentChain,
}

impl ChainPart {
    /// Starts it in a cloud's directory, with what it remembers there, and says where it is.
    pub(crate) async fn start(home: &Path) -> Result<Self, Failure> {
        let dir = home.join(DIRECTORY);
        let failed = |error| Failure::local(format!("cannot use {}", dir.display()), error);
        fs::create_dir_all(&dir).map_err(failed)?;
        let config = Config { state: Some(dir.join("node")), ..Config::default() };
        let chain = DevelopmentChain::start(config, Clock::system()).await.map_err(not_started)?;
        let part = Self { network_file: home.join(NETWORK_FILE), chain, dir };
        part.publish().map_err(|error| Failure::local("cannot say where the development chain is", error))?;
        Ok(part)
    }

    fn publish(&self) -> io::Result<()> {
        let [operator, owner, ..] = &ACCOUNTS;
        for (name, account) in [(OPERATOR_KEY, operator), (OWNER_KEY, owner)] {
            write(&self.dir.join(name), &hex::encode(*account.secret()))?;
        }
        write(&self.dir.join(ENDPOINTS), self.chain.rpc_url().as_str())?;
        let published = Published {
            chain_id: CHAIN_ID,
            rpc_url: self.chain.rpc_url().clone(),
            kms_contract: self.kms_contract().to_string(),
        };
        write(&self.network_file, &json!(published).to_string())
    }

    /// How it is read.
    pub(crate) fn config(&self) -> ChainConfig {
        self.chain.config()
    }

    /// The contract of the KMS.
    pub(crate) const fn kms_contract(&self) -> Address {
        self.chain.kms_contract()
    }

    /// Where it is asked.
    pub(crate) fn rpc_url(&self) -> &str {
        self.chain.rpc_url().as_str()
    }

    /// What the KMS has to know of it.
    pub(crate) fn governed(&self) -> Governed {
        Governed { chain_id: CHAIN_ID, contract: self.kms_contract(), endpoints: self.dir.join(ENDPOINTS) }
    }

    /// The key of the account that owns the contracts of examples.
    pub(crate) fn owner_key(&self) -> PathBuf {
        self.dir.join(OWNER_KEY)
    }

    /// The key of the account that owns the contract of the KMS.
    pub(crate) fn operator_key(&self) -> PathBuf {
        self.dir.join(OPERATOR_KEY)
    }

    /// As operators do after they have looked at what they run: allows the guest images in `images` and the machine of
    /// the KMS, and publishes its keys. What is on the chain already is not sent again.
    pub(crate) async fn register(&self, client: &Client, images: &Path) -> Result<(), Failure> {
        let document = client.get(&["kms", SLUG, "info"], &[]).await?;
        let inspection: KmsInspection = read(&document)?;
        let (Some(rpc), Some(machine)) = (&inspection.rpc, &inspection.guest_agent) else {
            let why = inspection.rpc_error.or(inspection.guest_agent_error).unwrap_or_default();
            return Err(Failure::new(Exit::Failed, format!("the KMS does not prove what it is: {why}")));
        };
        let images = image_hashes(images)?;
        let (device, measurement) = words(machine)?;
        let asked =
            self.chain.chain().kms_contract(self.kms_contract(), &[device], &images, &[measurement]).await;
        let view = asked.map_err(crate::commands::chain::unanswered)?;
        let contract = self.kms_contract();
        let mut calls: Vec<Call> = missing(&images, &view.os_images_allowed)
            .map(|image| allow_image(contract, image.into()))
            .collect();
        calls.extend(
            missing(&[device], &view.devices_allowed).map(|id| allow_kms_device(contract, id.into())),
        );
        calls.extend(
            missing(&[measurement], &view.aggregated_mrs_allowed).map(|mr| allow_kms(contract, mr.into())),
        );
        calls.extend(keys(contract, &view, &rpc.bootstrap_info.k256_pubkey, &rpc.bootstrap_info.ca_pubkey)?);
        let [operator, ..] = &ACCOUNTS;
        let network = self.network();
        account(&network, operator)?.send(&calls, |_| {}).await?;
        Ok(())
    }

    /// The chain, as commands ask it.
    pub(crate) fn network(&self) -> Network {
        Network::new(self.chain.chain().clone(), Some(self.kms_contract()))
    }

    /// The account that owns the contracts of examples.
    pub(crate) fn owner(network: &Network) -> Result<Account<'_>, Failure> {
        let [_, owner, ..] = &ACCOUNTS;
        account(network, owner)
    }

    /// Ends it; what it remembers stays for the next start.
    pub(crate) async fn stop(self) {
        let _ = fs::remove_file(&self.network_file);
        self.chain.stop().await;
    }
}

/// One of the accounts that everybody knows.
fn account<'a>(
    network: &'a Network,
    account: &cloister_development_chain::Account,
) -> Result<Account<'a>, Failure> {
    let key = account.key().map_err(|error| Failure::local("an account has no key", error))?;
    Ok(Account::new(network, Signer::Local(key)))
}

fn not_started(error: StartError) -> Failure {
    let failure = Failure::local("the development chain did not start", error);
    failure.hint(
        "install its node in the source tree: scripts/install-anvil.sh; or name it: CLOISTER_ANVIL=FILE",
    )
}

/// Writes a file for its owner only.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    writeln!(file, "{text}")
}

/// The hashes of the images in a directory.
fn image_hashes(images: &Path) -> Result<Vec<[u8; 32]>, Failure> {
    let failed = |error| Failure::local(format!("cannot read {}", images.display()), error);
    let mut hashes = Vec::new();
    for entry in fs::read_dir(images).map_err(failed)? {
        let text = fs::read_to_string(entry.map_err(failed)?.path().join(IMAGE_HASH)).unwrap_or_default();
        let mut hash = [0; 32];
        if hex::decode_to_slice(text.trim(), &mut hash).is_ok() {
            hashes.push(hash);
        }
    }
    Ok(hashes)
}

fn words(machine: &KmsMachine) -> Result<([u8; 32], [u8; 32]), Failure> {
    let word = |text: &str| {
        let mut word = [0; 32];
        hex::decode_to_slice(text, &mut word).map(|()| word)
    };
    let measurement = machine.mr_aggregated.as_deref().unwrap_or_default();
    match (word(&machine.device_id), word(measurement)) {
        (Ok(device), Ok(measurement)) => Ok((device, measurement)),
        _ => Err(Failure::new(Exit::Failed, "the KMS's machine has no device id or no measurements")),
    }
}

/// Those that are not allowed.
fn missing<'a>(asked: &'a [[u8; 32]], allowed: &'a [bool]) -> impl Iterator<Item = [u8; 32]> + 'a {
    asked.iter().zip(allowed).filter(|(_, is_allowed)| !**is_allowed).map(|(word, _)| *word)
}

/// The call that publishes the KMS's keys, unless the contract has them.
fn keys(contract: Address, view: &KmsContractView, k256: &str, ca: &str) -> Result<Option<Call>, Failure> {
    let bytes = |text: &str| {
        hex::decode(text).map_err(|error| Failure::local("the KMS's keys are no hex digits", error))
    };
    let (k256, ca) = (bytes(k256)?, bytes(ca)?);
    let is_published = view
        .kms_info
        .as_ref()
        .is_some_and(|info| info.k256_public_key.as_ref() == k256 && info.ca_public_key.as_ref() == ca);
    let info = cloister_contracts::KmsInfo {
        k256Pubkey: k256.into(),
        caPubkey: ca.into(),
        ..cloister_contracts::KmsInfo::default()
    };
    Ok((!is_published).then(|| publish_keys(contract, info)))
}
