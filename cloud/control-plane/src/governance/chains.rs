//! The chains of the installation, as [`Contracts`] asks them. Nothing else here names the chain client.

use std::collections::BTreeMap;

use cloister_app_compose::AppId;
use cloister_chain::{
    AllowanceQuestion, B256, Chain, ChainConfig, ChainError, InvalidChainConfig, MAX_QUESTIONS,
};
use futures_util::future::BoxFuture;

use super::{
    Address, AppContract, BlockRef, CannotTell, ContractReceipt, Contracts, KmsContractView, KmsQuestion,
    KnownChain, PublishedKeys, Question, ReceiptLog, Standing, app_contract,
};
use crate::clock::Clock;
use crate::kms::KmsContract;

/// Every chain that this installation can ask.
pub struct Chains(BTreeMap<u64, Chain>);

/// Why the chains cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainsError {
    /// One of them is configured wrongly.
    #[error("chain {chain_id} cannot be used: {why}")]
    Config {
        /// Which.
        chain_id: u64,
        /// Why.
        why: InvalidChainConfig,
    },
    /// The same one twice.
    #[error("chain {0} is configured twice; put all its endpoints into one entry")]
    Twice(u64),
    /// Two with one name.
    #[error("two chains are named {0:?}")]
    Name(String),
    /// A chain that may stand still cannot tell of revocations.
    #[error(
        "chain {0} has no oldest age of its newest block, which production needs; name one (max_head_age_s)"
    )]
    AnyAge(u64),
    /// A key management service has a contract on a chain that nobody can ask.
    #[error("the contract of KMS {slug} is on chain {chain_id}, which is not configured; add the chain")]
    Missing {
        /// Which service.
        slug: String,
        /// Which chain.
        chain_id: u64,
    },
}

impl Chains {
    /// Takes the configured chains; asks nothing yet. In production each needs an oldest age of its newest block.
    pub fn new(configured: Vec<ChainConfig>, production: bool, clock: &Clock) -> Result<Self, ChainsError> {
        let mut chains: BTreeMap<u64, Chain> = BTreeMap::new();
        for config in configured {
            let chain_id = config.chain_id;
            if chains.contains_key(&chain_id) {
                return Err(ChainsError::Twice(chain_id));
            }
            if chains.values().any(|chain| chain.config().name.eq_ignore_ascii_case(&config.name)) {
                return Err(ChainsError::Name(config.name));
            }
            if production && config.max_head_age.is_none() {
                return Err(ChainsError::AnyAge(chain_id));
            }
            let clock = clock.clone();
            let time = cloister_chain::Clock::from_fn(move || clock.now());
            let chain = Chain::new(config, time).map_err(|why| ChainsError::Config { chain_id, why })?;
            chains.insert(chain_id, chain);
        }
        Ok(Self(chains))
    }

    /// Refuses a service whose contract nobody could ask.
    pub fn check<'a>(
        &self,
        contracts: impl IntoIterator<Item = (&'a str, KmsContract)>,
    ) -> Result<(), ChainsError> {
        for (slug, KmsContract { chain_id, .. }) in contracts {
            if !self.0.contains_key(&chain_id) {
                return Err(ChainsError::Missing { slug: slug.to_owned(), chain_id });
            }
        }
        Ok(())
    }

    /// The chains of which one provider alone could tell this service what it likes, each with why. It is no reason
    /// not to start: keys depend on what the key management service sees, and that one asks for itself.
    pub fn cautions(&self) -> impl Iterator<Item = (&str, InvalidChainConfig)> {
        self.0.values().filter_map(|chain| {
            let config = chain.config();
            Some((config.name.as_str(), config.check_independence().err()?))
        })
    }

    fn chain(&self, chain_id: u64) -> Result<&Chain, CannotTell> {
        self.0.get(&chain_id).ok_or(CannotTell::UnknownChain(chain_id))
    }

    async fn standings(
        &self,
        chain_id: u64,
        app_id: AppId,
        questions: &[Question],
    ) -> Result<Vec<Standing>, CannotTell> {
        let address = app_contract(app_id);
        let mut standings = Vec::with_capacity(questions.len());
        let chain = self.chain(chain_id)?;
        for part in questions.chunks(MAX_QUESTIONS) {
            let asked: Vec<AllowanceQuestion> = part.iter().map(asked).collect();
            let answers = chain.allowances(address.into(), &asked).await?;
            if !answers.is_contract {
                return Err(CannotTell::NoContract { chain_id, address });
            }
            let standing = |(question, answer): (&Question, &cloister_chain::Allowance)| Standing {
                compose_hash_allowed: answer.compose_hash_allowed,
                device_id_allowed: question.device_id.is_some() && answer.device_id_allowed,
                allow_any_device: answers.allow_any_device,
            };
            standings.extend(part.iter().zip(&answers.results).map(standing));
        }
        Ok(standings)
    }

    async fn app(&self, kms: KmsContract, app_id: AppId) -> Result<AppContract, CannotTell> {
        let (chain_id, address) = (kms.chain_id, app_contract(app_id));
        let view = self.chain(chain_id)?.app_contract(kms.address.into(), address.into()).await?;
        if !view.has_code {
            return Err(CannotTell::NoContract { chain_id, address });
        }
        Ok(AppContract {
            is_registered: view.registered,
            owner: view.owner.filter(|owner| !owner.is_zero()).map(Address::from),
            owner_is_contract: view.owner_has_code,
            allow_any_device: view.allow_any_device,
        })
    }

    async fn kms(&self, contract: KmsContract, of: KmsQuestion) -> Result<KmsContractView, CannotTell> {
        let KmsContract { chain_id, address } = contract;
        let chain = self.chain(chain_id)?;
        let view = chain.kms_contract(address.into(), &of.devices, &of.os_images, &of.aggregated_mrs).await?;
        if !view.has_code {
            return Err(CannotTell::NoContract { chain_id, address });
        }
        let keys = view.kms_info.filter(|keys| !keys.k256_public_key.is_empty());
        Ok(KmsContractView {
            owner: view.owner.filter(|owner| !owner.is_zero()).map(Address::from),
            keys: keys.map(|keys| PublishedKeys {
                k256_pubkey: keys.k256_public_key.to_vec(),
                ca_pubkey: keys.ca_public_key.to_vec(),
                quote_length: keys.quote.len(),
                eventlog_length: keys.event_log.len(),
            }),
            gateway_app_id: view.gateway_app_id,
            devices: view.devices_allowed,
            os_images: view.os_images_allowed,
            aggregated_mrs: view.aggregated_mrs_allowed,
        })
    }

    /// The receipt, once so many blocks lie on its own as a grant needs before it counts.
    async fn receipt(
        &self,
        chain_id: u64,
        transaction: [u8; 32],
    ) -> Result<Option<ContractReceipt>, CannotTell> {
        let chain = self.chain(chain_id)?;
        let needed = chain.config().confirmations;
        let receipt = chain.receipt(B256::from(transaction)).await?;
        Ok(receipt.filter(|receipt| receipt.confirmations >= needed).map(known))
    }
}

impl From<ChainError> for CannotTell {
    fn from(error: ChainError) -> Self {
        Self::Chain(error.to_string())
    }
}

/// A question without a device is about the document alone: what is said of the device that stands there then does
/// not count.
fn asked(question: &Question) -> AllowanceQuestion {
    AllowanceQuestion {
        compose_hash: *question.compose_hash.as_bytes(),
        device_id: question.device_id.unwrap_or_default(),
    }
}

fn known(receipt: cloister_chain::Receipt) -> ContractReceipt {
    let log = |log: cloister_chain::Log| ReceiptLog {
        address: log.address.into(),
        topics: log.topics.into_iter().map(Into::into).collect(),
        data: log.data.to_vec(),
    };
    ContractReceipt {
        succeeded: receipt.succeeded,
        from: receipt.from.into(),
        to: receipt.to.map(Address::from),
        block: BlockRef { number: receipt.block.number, hash: receipt.block.hash.into() },
        logs: receipt.logs.into_iter().map(log).collect(),
    }
}

impl Contracts for Chains {
    fn chains(&self) -> Vec<KnownChain> {
        let known = |(id, chain): (&u64, &Chain)| KnownChain { id: *id, name: chain.config().name.clone() };
        self.0.iter().map(known).collect()
    }

    fn app(&self, kms: KmsContract, app_id: AppId) -> BoxFuture<'_, Result<AppContract, CannotTell>> {
        Box::pin(Self::app(self, kms, app_id))
    }

    fn kms(
        &self,
        contract: KmsContract,
        question: KmsQuestion,
    ) -> BoxFuture<'_, Result<KmsContractView, CannotTell>> {
        Box::pin(Self::kms(self, contract, question))
    }

    fn standings(
        &self,
        chain_id: u64,
        app_id: AppId,
        questions: Vec<Question>,
    ) -> BoxFuture<'_, Result<Vec<Standing>, CannotTell>> {
        Box::pin(async move { Self::standings(self, chain_id, app_id, &questions).await })
    }

    fn is_safe(&self, chain_id: u64, account: Address) -> BoxFuture<'_, Result<bool, CannotTell>> {
        Box::pin(async move { Ok(self.chain(chain_id)?.safe(account.into()).await?.is_some()) })
    }

    fn receipt(
        &self,
        chain_id: u64,
        transaction: [u8; 32],
    ) -> BoxFuture<'_, Result<Option<ContractReceipt>, CannotTell>> {
        Box::pin(Self::receipt(self, chain_id, transaction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: KmsContract = KmsContract { chain_id: 31337, address: [0xcc; 20] };

    fn config(chain_id: u64, name: &str) -> ChainConfig {
        // Nobody listens there.
        let endpoint = "http://127.0.0.1:9/secret-key".parse().unwrap();
        ChainConfig { name: name.to_owned(), ..ChainConfig::development(chain_id, endpoint) }
    }

    fn chains(configured: Vec<ChainConfig>) -> Result<Chains, ChainsError> {
        Chains::new(configured, false, &Clock::system())
    }

    #[test]
    fn each_chain_is_configured_once_and_under_a_name_of_its_own() {
        let refused = |configured| chains(configured).err().unwrap();
        assert_eq!(refused(vec![config(1, "one"), config(1, "two")]), ChainsError::Twice(1));
        assert_eq!(refused(vec![config(1, "one"), config(2, "One")]), ChainsError::Name("One".to_owned()));
        let plain =
            ChainConfig { endpoints: vec!["http://example.org".parse().unwrap()], ..config(1, "one") };
        assert!(matches!(refused(vec![plain]), ChainsError::Config { chain_id: 1, .. }));
        let production = Chains::new(vec![config(1, "one")], true, &Clock::system());
        assert_eq!(production.err(), Some(ChainsError::AnyAge(1)));
        let both = chains(vec![config(2, "two"), config(1, "one")]).unwrap();
        assert_eq!(both.chains().iter().map(|chain| chain.id).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_chain_that_one_provider_could_lie_about_is_named() {
        let two = ["https://one.example/secret-key", "https://two.example"].map(|url| url.parse().unwrap());
        let sound = ChainConfig { endpoints: two.to_vec(), quorum: 2, ..config(1, "sound") };
        let spare = ChainConfig { quorum: 1, ..config(2, "spare") };
        let chains = chains(vec![sound, spare]).unwrap();
        let cautions: Vec<_> = chains.cautions().map(|(name, why)| (name, why.to_string())).collect();
        let [(name, why)] = cautions.as_slice() else { panic!("{cautions:?}") };
        assert!(*name == "spare" && why.contains("different providers"), "{why}");
    }

    #[test]
    fn a_contract_needs_its_chain() {
        let chains = chains(vec![config(31337, "development")]).unwrap();
        chains.check([("main", CONTRACT)]).unwrap();
        let elsewhere = KmsContract { chain_id: 1, ..CONTRACT };
        let missing = ChainsError::Missing { slug: "other".to_owned(), chain_id: 1 };
        assert_eq!(chains.check([("main", CONTRACT), ("other", elsewhere)]), Err(missing));
    }

    #[tokio::test]
    async fn a_chain_that_does_not_answer_permits_nothing_and_its_keys_stay_secret() {
        let chains = chains(vec![config(31337, "development")]).unwrap();
        let app_id = AppId::from_bytes([1; 20]);
        let question = Question {
            compose_hash: cloister_app_compose::ComposeHash::from_bytes([2; 32]),
            device_id: None,
        };
        let failures = [
            Contracts::standings(&chains, 31337, app_id, vec![question]).await.unwrap_err(),
            Contracts::app(&chains, CONTRACT, app_id).await.unwrap_err(),
            Contracts::kms(&chains, CONTRACT, KmsQuestion::default()).await.unwrap_err(),
            Contracts::receipt(&chains, 31337, [3; 32]).await.unwrap_err(),
            Contracts::is_safe(&chains, 31337, [4; 20]).await.unwrap_err(),
        ];
        for failure in failures {
            assert!(
                matches!(failure, CannotTell::Chain(_)) && !failure.to_string().contains("secret-key"),
                "{failure}"
            );
        }
        let unknown = Contracts::standings(&chains, 1, app_id, vec![question]).await;
        assert_eq!(unknown, Err(CannotTell::UnknownChain(1)));
    }
}
