//! `cloister cvms replicate`: run an application once more.

use cloister_management_api::{Vm, VmId};
use serde_json::json;

use crate::api::read;
use crate::args::{CvmName, Waiting};
use crate::commands::Outcome;
use crate::commands::follow::{self, Goal};
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
    waiting: Waiting,
}

/// Makes another CVM of the same application and waits until it is up.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let mut progress = output.progress();
    progress.phase("finding room");
    let body = args.node.map(|node| json!({ "node_id": node }));
    let accepted = client.post(&["cvms", &args.name.cvm, "replicas"], body.as_ref()).await?;
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
        super::summary(output, &detail);
    }
    Ok(())
}
