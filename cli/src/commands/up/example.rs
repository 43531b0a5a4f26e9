//! An application that `cloister up` brings along.

use std::path::{Path, PathBuf};

use serde_json::Value;
use url::Url;

use super::cloud::Cloud;
use super::ready;
use crate::api::Client;
use crate::commands::deploy::{self, App, Contract, Keys, Parts, Size, read_text};
use crate::commands::follow::{self, Goal};
use crate::commands::image;
use crate::failure::{Exit, Failure};
use crate::output::Progress;
use crate::parts::development_chain::{self, ChainPart};

/// Longest way from the deployment to a running CVM, in seconds; emulation on a busy host is slow.
const PATIENCE_SECONDS: u64 = 300;

/// An application that answers.
#[derive(Debug)]
pub(super) struct Running {
    /// Name of its CVM.
    pub(super) cvm: String,
    url: Url,
}

impl Running {
    /// Where it answers.
    pub(super) fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

/// Deploys the application unless its CVM is there already, and waits until it answers.
pub(super) async fn deploy(
    client: &Client,
    directory: &Path,
    cloud: &Cloud,
    progress: &mut Progress,
) -> Result<Running, Failure> {
    let compose = directory.join("compose.yaml");
    let name = deploy::name_from(&compose)?;
    let cvm = name.to_string();
    match follow::detail(client, &cvm).await {
        Ok((_, found)) if !found.in_progress && found.status != "running" => {
            client.post(&["cvms", &cvm, "start"], None).await?;
        }
        Ok(_) => {}
        Err(failure) if failure.exit == Exit::NotFound => {
            let compose_file = read_text(&compose)?;
            let app = App::new(name, &Parts { compose_file: &compose_file, ..Parts::default() })?;
            for archive in archives(directory)? {
                progress.phase(&format!("sending {}", archive.display()));
                image::push(client, &archive, None).await?;
            }
            progress.phase("checking the compose file");
            match cloud.chain() {
                None => deploy::create(client, &app, &Size::default()).await?,
                Some(chain) => under_contract(client, &app, chain, progress).await?,
            };
        }
        Err(failure) => return Err(failure),
    }
    follow::follow(client, &cvm, Goal::Running, PATIENCE_SECONDS, progress).await?;
    progress.phase("waiting for the application to answer");
    let url = ready::app_answers(client, cloud, &cvm).await?;
    Ok(Running { cvm, url })
}

/// The same as `deploy --kms contract --key-file OWNER_KEY`: the application's contract comes first.
async fn under_contract(
    client: &Client,
    app: &App,
    chain: &ChainPart,
    progress: &mut Progress,
) -> Result<Value, Failure> {
    let keys = Keys { kms: Some(development_chain::SLUG.to_owned()), ..Keys::default() };
    let provision = deploy::provision(client, app, &Size::default(), &keys).await?;
    let contract = Contract::of(&provision).ok_or_else(|| {
        Failure::new(Exit::Failed, "no contract decides for the KMS of the development chain")
    })?;
    progress.phase("making the application's contract");
    let network = chain.network();
    let made = contract.make(app, &network, &ChainPart::owner(&network)?, progress).await?;
    progress.phase("creating the CVM");
    deploy::create_from(client, app, &provision, Some(&made), None).await
}

/// The image archives of a directory, by name.
fn archives(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(directory)
        .map_err(|error| Failure::usage(format!("cannot read {}", directory.display())).caused_by(error))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut archives: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|suffix| suffix == "tar")).collect();
    archives.sort();
    Ok(archives)
}
