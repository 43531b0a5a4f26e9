//! `cloister cvms start|stop|shutdown|restart`.

use serde_json::json;

use crate::args::{CvmName, Waiting};
use crate::commands::Outcome;
use crate::commands::follow::{self, Goal};
use crate::session::Session;

/// Arguments of `cvms start`, `stop` and `shutdown`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
    #[command(flatten)]
    waiting: Waiting,
}

/// Arguments of `cvms restart`.
#[derive(Debug, clap::Args)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    args: Args,
    /// Take the power away instead of letting the application end
    #[arg(long)]
    force: bool,
}

/// A change of power.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    /// On.
    Start,
    /// Off at once.
    Stop,
    /// Off in order.
    Shutdown,
    /// Off and on, at once if forced.
    Restart { force: bool },
}

impl Change {
    const fn path(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Shutdown => "shutdown",
            Self::Restart { .. } => "restart",
        }
    }

    const fn goal(self) -> Goal {
        match self {
            Self::Start | Self::Restart { .. } => Goal::Running,
            Self::Stop | Self::Shutdown => Goal::Stopped,
        }
    }
}

/// Restarts a CVM.
pub(super) async fn restart(args: RestartArgs, session: &Session) -> Outcome {
    run(Change::Restart { force: args.force }, args.args, session).await
}

/// Asks for the change and waits for it.
pub(super) async fn run(change: Change, args: Args, session: &Session) -> Outcome {
    let (client, output, cvm) = (session.client()?, &session.output, args.name.cvm.as_str());
    let body = match change {
        Change::Restart { force: true } => Some(json!({ "force": true })),
        _ => None,
    };
    let accepted = client.post(&["cvms", cvm, change.path()], body.as_ref()).await?;
    if args.waiting.no_wait {
        if output.json {
            output.document(&accepted);
        } else {
            output.say(&format!("{cvm}: {} accepted", change.path()));
        }
        return Ok(());
    }
    let mut progress = output.progress();
    follow::follow(&client, cvm, change.goal(), args.waiting.timeout, &mut progress).await?;
    let (document, detail) = follow::detail(&client, cvm).await?;
    progress.done(&format!("{cvm} is {}", detail.status));
    if output.json {
        output.document(&document);
    }
    Ok(())
}
