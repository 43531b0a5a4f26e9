//! On which devices an application under a contract may run: a replica goes to one of them, if it may go anywhere.

use std::collections::BTreeSet;

use crate::fleet::DeviceWish;
use crate::governance::{CannotTell, Contracts, Governance, Question};
use crate::kms::KmsContract;
use crate::store::{CvmRow, Store};

use super::ReplicaError;

/// Most nodes whose devices are asked about, in one round trip; the best ones.
pub(super) const MAX_ASKED: usize = 256;

/// The contract that says so, and what its answer is good for.
#[derive(Clone, Copy)]
pub(crate) struct Devices<'a> {
    contracts: &'a dyn Contracts,
    contract: KmsContract,
    is_required: bool,
}

impl<'a> Devices<'a> {
    /// Allowed devices come first: somebody is asked to allow another one where nothing else has room. `None` where
    /// no contract decides.
    pub(crate) const fn preferred(contracts: &'a dyn Contracts, governance: &Governance) -> Option<Self> {
        match governance {
            Governance::Contract(contract) => {
                Some(Self { contracts, contract: *contract, is_required: false })
            }
            Governance::Workspace | Governance::Owners | Governance::Unknown => None,
        }
    }

    /// Nothing but allowed devices: nobody is there to ask for another one.
    pub(crate) const fn required(contracts: &'a dyn Contracts, contract: KmsContract) -> Self {
        Self { contracts, contract, is_required: true }
    }

    /// Which of the nodes are allowed devices. One that has not proved what it is, is none.
    pub(super) async fn wish(
        self,
        store: &Store,
        source: &CvmRow,
        nodes: &[i64],
    ) -> Result<DeviceWish, ReplicaError> {
        let known = store.latest_devices().await?;
        let asked: Vec<(i64, [u8; 32])> =
            nodes.iter().filter_map(|node| Some((*node, *known.get(node)?))).collect();
        let mut nodes = BTreeSet::new();
        if !asked.is_empty() {
            let question = |(_, device): &(i64, [u8; 32])| Question {
                compose_hash: source.compose_hash,
                device_id: Some(*device),
            };
            let questions: Vec<_> = asked.iter().map(question).collect();
            let count = questions.len();
            let said = self.contracts.standings(self.contract.chain_id, source.app_id, questions).await?;
            if said.len() != count {
                let text = "the chain answered another number of questions than was asked";
                return Err(CannotTell::Chain(text.to_owned()).into());
            }
            let is_allowed = asked.iter().zip(said);
            nodes = is_allowed
                .filter(|(_, standing)| standing.allow_any_device || standing.device_id_allowed)
                .map(|((node, _), _)| *node)
                .collect();
        }
        Ok(DeviceWish { nodes, is_required: self.is_required })
    }
}
