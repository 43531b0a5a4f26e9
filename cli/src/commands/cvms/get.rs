//! `cloister cvms get`.

use cloister_management_api::CvmState;
use cloister_management_api::v20260121::CvmInfo;

use super::list::{app_url, minute};
use crate::api::read;
use crate::args::CvmName;
use crate::commands::follow::Goal;
use crate::commands::{Outcome, follow};
use crate::output::Output;
use crate::session::Session;

/// Arguments of `cvms get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
}

/// Prints one CVM.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let client = session.client()?;
    let (document, cvm) = follow::detail(&client, &args.name.cvm).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let state = client.get(&["cvms", &cvm.id.to_string(), "state"], &[]).await;
    let state = state.and_then(|state| read::<CvmState>(&state));
    // What is known already is of use without the rest.
    summary(&session.output, &cvm, state.as_ref().ok());
    state.map(drop)
}

/// Prints what matters about a CVM, and how it does.
pub(crate) fn summary(output: &Output, cvm: &CvmInfo, state: Option<&CvmState>) {
    let (working, resting) =
        (state.filter(|state| state.in_progress), state.filter(|state| !state.in_progress));
    let (running, off) = (resting.filter(|state| is_up(state)), resting.filter(|state| !is_up(state)));
    let health = working.or(running).and_then(|state| {
        let health = state.health.clone()?;
        Some(state.health_detail.as_ref().map_or_else(|| health.clone(), |why| format!("{health}: {why}")))
    });
    let size = &cvm.resource;
    let size = size.vcpu.zip(size.memory_in_gb).zip(size.disk_in_gb);
    let size = size.map(|((vcpu, memory), disk)| format!("{vcpu} vCPU, {memory} GB memory, {disk} GB disk"));
    output.fields(&[
        ("Name", Some(cvm.name.clone())),
        ("ID", Some(cvm.id.to_string())),
        ("Status", Some(cvm.status.clone())),
        ("Phase", working.map(follow::phase)),
        ("Reason", off.and_then(|state| state.boot_error.clone())),
        ("Ended", off.and_then(ended)),
        ("Health", health),
        ("Up for", running.and_then(|state| state.uptime.clone())),
        ("URL", app_url(cvm)),
        ("App id", cvm.app_id.map(|id| id.to_string())),
        ("Instance id", cvm.instance_id.map(|id| id.to_string())),
        ("Compose hash", cvm.compose_hash.map(|hash| hash.to_string())),
        ("Size", size),
        ("Guest image", cvm.os.as_ref().and_then(|os| os.name.clone())),
        ("Node", cvm.node_info.as_ref().and_then(|node| node.name.clone())),
        ("Created", cvm.created_at.map(minute)),
    ]);
}

fn is_up(state: &CvmState) -> bool {
    state.status == Goal::Running.status()
}

/// When it ended, and why if nobody asked for it.
fn ended(state: &CvmState) -> Option<String> {
    let at = minute(state.exited_at?);
    Some(state.exit_reason.as_ref().map_or_else(|| at.clone(), |reason| format!("{at}: {reason}")))
}
