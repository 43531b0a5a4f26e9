//! The contracts on the chain, and where they are.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use cloister_chain::{Address, Bytes, Chain, Sender, Signer, Transaction};
use cloister_contracts::artifacts;
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::{ACCOUNTS, StartError, io};

const FILE: &str = "deployment.json";

/// What was put onto the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The KMS contract: a proxy.
    pub kms_contract: Address,
    /// What the KMS contract runs.
    pub kms_implementation: Address,
    /// What contracts of applications run.
    pub app_implementation: Address,
}

#[derive(Serialize, Deserialize)]
struct Remembered {
    kms_contract: String,
    kms_implementation: String,
    app_implementation: String,
}

/// The contracts that `directory` remembers if the chain still has them, or new ones.
pub(crate) async fn ensure(chain: &Chain, directory: &Path) -> Result<Deployment, StartError> {
    let remembered = read(directory)?;
    if let Some(deployment) = remembered
        && chain.kms_contract(deployment.kms_contract, &[], &[], &[]).await?.has_code
    {
        return Ok(deployment);
    }
    let deployment = deploy(chain).await?;
    write(directory, &deployment)?;
    info!(kms_contract = %deployment.kms_contract, "contracts were put onto the development chain");
    Ok(deployment)
}

async fn deploy(chain: &Chain) -> Result<Deployment, StartError> {
    let [deployer, ..] = &ACCOUNTS;
    let sender = Sender::new(chain.clone(), Signer::Local(deployer.key()?));
    let kms_implementation = create(&sender, Bytes::from_static(&artifacts::KMS_IMPLEMENTATION)).await?;
    let app_implementation = create(&sender, Bytes::from_static(&artifacts::APP_IMPLEMENTATION)).await?;
    let proxy = artifacts::kms_proxy(kms_implementation, deployer.address(), Some(app_implementation));
    let kms_contract = create(&sender, proxy).await?;
    Ok(Deployment { kms_contract, kms_implementation, app_implementation })
}

async fn create(sender: &Sender, code: Bytes) -> Result<Address, StartError> {
    let receipt = sender.send(&Transaction::create(code), |_| {}).await?;
    receipt.contract_address.ok_or(StartError::NoAddress)
}

fn read(directory: &Path) -> Result<Option<Deployment>, StartError> {
    let path = directory.join(FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io("read what it remembers")(source)),
    };
    let remembered = serde_json::from_slice::<Remembered>(&text).ok().and_then(|remembered| {
        Some(Deployment {
            kms_contract: remembered.kms_contract.parse().ok()?,
            kms_implementation: remembered.kms_implementation.parse().ok()?,
            app_implementation: remembered.app_implementation.parse().ok()?,
        })
    });
    remembered.map(Some).ok_or(StartError::Remembered(path))
}

fn write(directory: &Path, deployment: &Deployment) -> Result<(), StartError> {
    let remembered = Remembered {
        kms_contract: deployment.kms_contract.to_string(),
        kms_implementation: deployment.kms_implementation.to_string(),
        app_implementation: deployment.app_implementation.to_string(),
    };
    let text = serde_json::to_vec_pretty(&remembered).map_err(|error| io("write JSON")(error.into()))?;
    let new = directory.join("deployment.json.new");
    fs::write(&new, text).map_err(io("remember where its contracts are"))?;
    fs::rename(new, directory.join(FILE)).map_err(io("remember where its contracts are"))
}
