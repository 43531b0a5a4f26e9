//! `cloister kms rotate`: a new root while CVMs run.

use cloister_app_compose::{AppId, InstanceId};
use cloister_kms_api::admin::{
    FORGET_CVM, ForgetCvm, RETIRE_ROOT, ROTATION_STATUS, RetireRoot, RotationStatus, START_ROTATION,
};
use serde_json::json;

use super::connection::AdminArgs;
use crate::commands::Outcome;
use crate::output::{Align, Table};
use crate::session::Session;

/// The subcommands of `kms rotate`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a new root, from which keys come from now on; older ones stay valid until they are retired
    Start(StartArgs),
    /// Show which CVMs still hold data under an older root
    Status(StatusArgs),
    /// Wait no longer for a CVM that was deleted
    Forget(ForgetArgs),
    /// Destroy the keys of the oldest root
    Retire(RetireArgs),
}

/// Arguments of `kms rotate start`.
#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `kms rotate status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `kms rotate forget`.
#[derive(Debug, clap::Args)]
pub(crate) struct ForgetArgs {
    /// App id
    app: AppId,
    /// Instance id; without it, the app's CVMs that have none
    instance: Option<InstanceId>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `kms rotate retire`.
#[derive(Debug, clap::Args)]
pub(crate) struct RetireArgs {
    /// Version of the root; the oldest that is left
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    version: u32,
    /// Retire it although CVMs hold data under it: that data is lost for good
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let nothing = json!({});
    let (status, words) = match command {
        Command::Start(args) => {
            let status: RotationStatus = args.admin.open(session)?.call(START_ROTATION, &nothing).await?;
            (status, Some("A new root is current. Each CVM moves to it when it next starts.".to_owned()))
        }
        Command::Status(args) => (args.admin.open(session)?.call(ROTATION_STATUS, &nothing).await?, None),
        Command::Forget(args) => {
            let forget = ForgetCvm { app_id: args.app, instance_id: args.instance };
            (args.admin.open(session)?.call(FORGET_CVM, &forget).await?, None)
        }
        Command::Retire(args) => {
            let retire = RetireRoot { version: args.version, force: args.force };
            let status = args.admin.open(session)?.call(RETIRE_ROOT, &retire).await?;
            (
                status,
                Some(format!("Root {} is retired; nothing can be opened with it any more.", args.version)),
            )
        }
    };
    if session.output.json {
        session.output.document(&json!(status));
        return Ok(());
    }
    show(&status, session);
    if let Some(words) = words {
        session.output.say(&words);
    }
    Ok(())
}

/// The roots, then who still needs the old ones.
pub(super) fn show(status: &RotationStatus, session: &Session) {
    let mut roots = Table::new(&[
        ("ROOT", Align::Right),
        ("STATE", Align::Left),
        ("MADE", Align::Left),
        ("ROOT KEY", Align::Left),
    ]);
    let current = status.roots.last().map(|root| root.version);
    for root in &status.roots {
        let state = match root.retired_at {
            Some(at) => format!("retired {at:.0}"),
            None if Some(root.version) == current => "current".to_owned(),
            None => "valid".to_owned(),
        };
        let key = hex::encode(&root.k256_pubkey);
        roots.row([root.version.to_string(), state, format!("{:.0}", root.created_at), key]);
    }
    session.output.table(&roots, "No root was made yet.");
    session.output.say(&format!(
        "{} CVMs hold their data under the current root, {} under older ones.",
        status.resealed, status.pending_total
    ));
    let mut pending = Table::new(&[
        ("APP", Align::Left),
        ("INSTANCE", Align::Left),
        ("ROOT", Align::Right),
        ("LAST SEEN", Align::Left),
    ]);
    for cvm in &status.pending {
        pending.row([
            cvm.app_id.to_string(),
            cvm.instance_id.map(|id| id.to_string()).unwrap_or_default(),
            cvm.root_version.to_string(),
            format!("{:.0}", cvm.last_seen),
        ]);
    }
    if !pending.is_empty() {
        session.output.table(&pending, "");
        session.output.say(
            "They move when they next start: cloister cvms restart CVM. Those that were deleted: cloister kms \
             rotate forget APP INSTANCE",
        );
    }
}
