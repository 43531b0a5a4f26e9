//! `cloister cvms envs`: give a CVM another environment.

use std::collections::BTreeSet;

use cloister_management_api::EnvsUpdate;
use cloister_management_api::v20260121::CvmInfoDetail;
use serde_json::{Value, json};

use crate::api::read;
use crate::args::{CvmName, Waiting};
use crate::commands::Outcome;
use crate::commands::chain::ChainOptions;
use crate::commands::deploy::{EnvArgs, names_kms, seal};
use crate::commands::follow::{self, Goal};
use crate::failure::Failure;
use crate::session::Session;

/// The service of the CVM's application, whatever it is called.
const OWN_KMS: &str = "phala";

/// Arguments of `cvms envs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister cvms envs my-app --env-file secrets.env")]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
    #[command(flatten)]
    environment: EnvArgs,
    #[command(flatten)]
    chain: ChainOptions,
    #[command(flatten)]
    waiting: Waiting,
}

/// Seals, sends, and waits until the CVM is up with it.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let environment = args.environment.read()?.ok_or_else(|| {
        Failure::usage("which environment?")
            .hint("give all of it: --env-file FILE, -e NAME; the old one is replaced")
    })?;
    let (client, output, cvm) = (session.client()?, &session.output, args.name.cvm.as_str());
    let detail: CvmInfoDetail = read(&client.get(&["cvms", cvm], &[]).await?)?;
    let app_id = detail.info.app_id.ok_or_else(|| Failure::usage(format!("{cvm} has no application")))?;
    let allowed = detail.compose_file.as_ref().and_then(|document| document.get("allowed_envs")?.as_array());
    let allowed: BTreeSet<&str> = allowed.into_iter().flatten().filter_map(|name| name.as_str()).collect();
    if let Some((name, _)) = environment.iter().find(|(name, _)| !allowed.contains(name)) {
        return Err(Failure::usage(format!("the application of {cvm} takes no variable {name}"))
            .hint("its document, and so what it is, names the variables")
            .hint(format!("change the names with the values: cloister update {cvm} --env-file FILE")));
    }
    let mut progress = output.progress();
    progress.phase("sealing the environment");
    let published = args.chain.published_root(detail.info.kms_info.as_ref(), session).await?;
    let root = args.environment.root(published)?;
    let is_pinned = detail.compose_file.as_ref().and_then(Value::as_object).is_some_and(names_kms);
    let sealed = seal(&environment, app_id, OWN_KMS, root, is_pinned, &client, session).await?;
    let body = json!({ "encrypted_env": sealed });
    let accepted = client.patch(&["cvms", cvm, "envs"], &body).await?;
    read::<EnvsUpdate>(&accepted)?;
    if args.waiting.no_wait {
        progress.done(&format!("{cvm}: new environment accepted"));
        if output.json {
            output.document(&accepted);
        }
        return Ok(());
    }
    let goal = if detail.info.status == "stopped" { Goal::Stopped } else { Goal::Running };
    follow::follow(&client, cvm, goal, args.waiting.timeout, &mut progress).await?;
    let (document, detail) = follow::detail(&client, cvm).await?;
    progress.done(&format!("{cvm} has the new environment and is {}", detail.status));
    if output.json {
        output.document(&document);
    }
    Ok(())
}
