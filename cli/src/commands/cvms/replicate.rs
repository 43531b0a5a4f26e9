//! `cloister cvms replicate`: run an application once more.

use cloister_management_api::{Vm, VmId};
use serde_json::json;

use crate::api::{Client, read};
use crate::args::{CvmName, Waiting};
use crate::commands::Outcome;
use crate::commands::approval::{Kind, Needed};
use crate::commands::chain::{self, OwnerOptions};
use crate::commands::commit::{self, Prepared};
use crate::commands::follow::{self, Goal};
use crate::failure::Failure;
use crate::session::Session;

/// Arguments of `cvms replicate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister cvms replicate my-app --node 2")]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
    /// Node by number [default: that of the CVM]
    #[arg(long, value_name = "ID")]
    node: Option<i64>,
    #[command(flatten)]
    owner: OwnerOptions,
    #[command(flatten)]
    waiting: Waiting,
}

/// Makes another CVM of the same application and waits until it is up.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let mut progress = output.progress();
    progress.phase("finding room");
    let body = args.node.map(|node| json!({ "node_id": node }));
    let accepted = match client.post(&["cvms", &args.name.cvm, "replicas"], body.as_ref()).await {
        Ok(accepted) => accepted,
        Err(failure) => {
            drop(progress);
            return args.once_allowed(Needed::of(failure)?, &client, session).await;
        }
    };
    let replica: Vm = read(&accepted)?;
    if args.waiting.no_wait {
        progress.done(&format!("{} is accepted", replica.name));
        if output.json {
            output.document(&accepted);
        }
        return Ok(());
    }
    let id = match replica.id {
        VmId::Integer(number) => number.to_string(),
        VmId::Hashed(id) => id.to_string(),
    };
    follow::follow(&client, &id, Goal::Running, args.waiting.timeout, &mut progress).await?;
    let (document, detail) = follow::detail(&client, &id).await?;
    progress.done(&format!("{} is running", detail.name));
    if output.json {
        output.document(&document);
    } else {
        super::summary(output, &detail, None);
    }
    Ok(())
}

impl Args {
    /// Has those who decide allow the device, if they are here, and then has the replica made.
    async fn once_allowed(&self, needed: Needed, client: &Client, session: &Session) -> Outcome {
        let (_, source) = follow::detail(client, &self.name.cvm).await?;
        let (name, kind) = (source.name.as_str(), Kind::Replica);
        let (Some(app_id), Some(compose_hash)) = (source.app_id, source.compose_hash) else {
            return Err(Failure::usage(format!("{name} has no application")));
        };
        needed.check(app_id, compose_hash)?;
        // The document is the server's word: it has to be allowed already.
        let base = compose_hash;
        let waiting = chain::Waiting { cvm: name, app_id, compose_hash, base, kind, needed: &needed };
        let transaction = self.owner.allow(&waiting, session).await?;
        let token = needed.commit_token.as_deref().ok_or_else(|| needed.waits(name, kind))?;
        let change = Prepared { cvm: name, kind, token, goal: Goal::Running, patience: commit::PATIENCE };
        let progress = session.output.progress();
        change.carry_out(transaction.as_deref(), self.waiting, client, progress, session).await
    }
}
