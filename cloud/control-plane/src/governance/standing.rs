//! Asking those who decide.

use cloister_app_compose::AppId;

use super::{CannotTell, Governance, Question, Standing, owners};
use crate::App;
use crate::store::{CvmRow, StoreError};

/// What a document has to which nobody objects.
const FREE: Standing =
    Standing { compose_hash_allowed: true, device_id_allowed: true, allow_any_device: true };

/// Who decides for an application with keys from the service of this number, if it has keys: its contract, else
/// its owners, else the workspace.
pub(crate) async fn of_app(app: &App, app_id: AppId, kms: Option<i64>) -> Result<Governance, StoreError> {
    let kms = kms.and_then(|id| app.kmses.get(id));
    match Governance::of_kms(kms.map(AsRef::as_ref)) {
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

/// The device that a node was last proved to be; `None` while nothing proved it.
pub(crate) async fn device_of_node(app: &App, node_id: i64) -> Result<Option<[u8; 32]>, StoreError> {
    let device = app.store.device_of_node(node_id).await?;
    Ok(device.and_then(|row| <[u8; 32]>::try_from(hex::decode(row.device_id).ok()?).ok()))
}
