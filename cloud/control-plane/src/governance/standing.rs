//! Asking those who decide.

use std::time::Duration;

use cloister_app_compose::AppId;

use super::{CannotTell, Contracts, Governance, Question, Standing, owners};
use crate::App;
use crate::kms::KmsContract;
use crate::store::{CvmRow, Store, StoreError};

/// How often a chain is asked before its answer counts: the endpoint that answers may be behind the one that a
/// transaction was sent through.
pub(crate) const LOOKS: usize = 4;
/// Time between two looks; tests do not wait.
pub(crate) const PAUSE: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };

/// What a document has to which nobody objects.
const FREE: Standing =
    Standing { compose_hash_allowed: true, device_id_allowed: true, allow_any_device: true };

/// Who decides for an application with keys from the service of this number, if it has keys: its contract, else
/// its owners, else the workspace. Where that service is gone, nobody knows.
pub(crate) async fn of_app(app: &App, app_id: AppId, kms: Option<i64>) -> Result<Governance, StoreError> {
    let known = kms.and_then(|id| app.kmses.get(id));
    if kms.is_some() && known.is_none() {
        return Ok(Governance::Unknown);
    }
    match Governance::of_kms(known.map(AsRef::as_ref)) {
        Governance::Workspace if owners::are_known(&app.store, app_id).await? => Ok(Governance::Owners),
        governance => Ok(governance),
    }
}

/// Who decides for the application of a CVM.
pub(crate) async fn of_cvm(app: &App, cvm: &CvmRow) -> Result<Governance, StoreError> {
    of_app(app, cvm.app_id, cvm.kms_id).await
}

/// What those who decide say to each question now, never from memory. The same number of answers as questions.
pub(crate) async fn standings(
    app: &App,
    governance: &Governance,
    app_id: AppId,
    questions: Vec<Question>,
) -> Result<Vec<Standing>, CannotTell> {
    let count = questions.len();
    let standings = match governance {
        Governance::Workspace => vec![FREE; count],
        Governance::Contract(contract) => {
            app.contracts.standings(contract.chain_id, app_id, questions).await?
        }
        Governance::Owners => owners::standings(&app.store, app_id, &questions).await?,
        Governance::Unknown => return Err(CannotTell::NoKms),
    };
    if standings.len() == count {
        Ok(standings)
    } else {
        Err(CannotTell::Chain("the chain answered another number of questions than was asked".to_owned()))
    }
}

/// What those who decide say to one question now.
pub(crate) async fn standing(
    app: &App,
    governance: &Governance,
    app_id: AppId,
    question: Question,
) -> Result<Standing, CannotTell> {
    Ok(standings(app, governance, app_id, vec![question]).await?.pop().unwrap_or_default())
}

/// Whether the contract of an application lets it run a document on a device now. A device that is not known is none
/// that was allowed; a refusal counts only when it lasts.
pub(crate) async fn contract_allows(
    contracts: &dyn Contracts,
    contract: KmsContract,
    app_id: AppId,
    question: Question,
) -> Result<bool, CannotTell> {
    for look in 0..LOOKS {
        if look > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let standings = contracts.standings(contract.chain_id, app_id, vec![question]).await?;
        if standings.first().is_some_and(|standing| standing.is_allowed(true)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The device that a node was last proved to be; `None` while nothing proved it.
pub(crate) async fn device_of_node(store: &Store, node_id: i64) -> Result<Option<[u8; 32]>, StoreError> {
    let device = store.device_of_node(node_id).await?;
    Ok(device.and_then(|row| <[u8; 32]>::try_from(hex::decode(row.device_id).ok()?).ok()))
}
