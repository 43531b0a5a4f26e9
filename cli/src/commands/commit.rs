//! `cloister commit`: carry out a change that waited until it was allowed.

use std::time::Duration;

use cloister_management_api::{CommittedUpdate, Vm, VmId};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::approval::{self, Kind};
use super::follow::{self, Goal};
use super::update::of_operation;
use crate::api::{Client, read};
use crate::args::{CvmName, Waiting};
use crate::failure::{Exit, Failure};
use crate::output::Progress;
use crate::session::Session;

/// How long the server may take to see what was just allowed: it may wait for more confirmations than this command.
pub(super) const PATIENCE: Duration = Duration::from_mins(10);
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// Arguments of `commit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister commit my-app --token 0b6a4a5e-5d7c-4b7e-9f0e-0c5f5b1d8f3a")]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
    /// Token that `update` or `cvms replicate` printed; it is good for nothing but this change
    #[arg(long, value_name = "UUID")]
    token: String,
    /// Transaction that allowed it [default: what is allowed now is looked up]
    #[arg(long, value_name = "HASH")]
    transaction: Option<String>,
    /// The change is another CVM like this one
    #[arg(long)]
    replica: bool,
    /// Wait until those who decide have allowed it, as long as --timeout says
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// Commits, and waits until the change is made.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let client = session.client()?;
    let kind = if args.replica { Kind::Replica } else { Kind::Update };
    let progress = session.output.progress();
    let goal = match kind {
        Kind::Update if is_stopped(&client, &args.name.cvm).await? => Goal::Stopped,
        _ => Goal::Running,
    };
    let patience = if args.wait { Duration::from_secs(args.waiting.timeout) } else { Duration::ZERO };
    let change = Prepared { cvm: &args.name.cvm, kind, token: &args.token, goal, patience };
    change.carry_out(args.transaction.as_deref(), args.waiting, &client, progress, session).await
}

async fn is_stopped(client: &Client, cvm: &str) -> Result<bool, Failure> {
    Ok(follow::detail(client, cvm).await?.1.status == "stopped")
}

/// A change that was prepared.
pub(super) struct Prepared<'a> {
    /// The CVM that is changed, or that the new one is like.
    pub(super) cvm: &'a str,
    pub(super) kind: Kind,
    pub(super) token: &'a str,
    /// Where the CVM gets.
    pub(super) goal: Goal,
    /// How long the server may take to see that it is allowed.
    pub(super) patience: Duration,
}

impl Prepared<'_> {
    /// Commits it and follows it to its end.
    pub(super) async fn carry_out(
        &self,
        transaction: Option<&str>,
        waiting: Waiting,
        client: &Client,
        mut progress: Progress,
        session: &Session,
    ) -> Outcome {
        progress.phase("committing");
        let accepted = self.accepted(transaction, client).await?;
        let (cvm, correlation_id) = match self.kind {
            Kind::Update => {
                (self.cvm.to_owned(), read::<CommittedUpdate>(&accepted)?.correlation_id.to_string())
            }
            Kind::Replica => match read::<Vm>(&accepted)?.id {
                VmId::Integer(number) => (number.to_string(), String::new()),
                VmId::Hashed(id) => (id.to_string(), String::new()),
            },
        };
        if waiting.no_wait {
            progress.done("the change is accepted");
            if session.output.json {
                session.output.document(&accepted);
            }
            return Ok(());
        }
        let followed = follow::follow(client, &cvm, self.goal, waiting.timeout, &mut progress).await;
        if correlation_id.is_empty() {
            followed?;
        } else {
            of_operation(client, &cvm, self.cvm, &correlation_id, followed).await?;
        }
        let (document, detail) = follow::detail(client, &cvm).await?;
        progress.done(&format!("{} is {}", detail.name, detail.status));
        if session.output.json {
            session.output.document(&document);
        }
        Ok(())
    }

    /// Commits, and again while the server does not see yet what the chain says.
    async fn accepted(&self, transaction: Option<&str>, client: &Client) -> Result<Value, Failure> {
        let began = Instant::now();
        loop {
            match approval::commit(client, self.cvm, self.kind, self.token, transaction).await {
                Err(failure) if failure.exit == Exit::AwaitsApproval && began.elapsed() < self.patience => {
                    sleep(LOOK_AGAIN).await;
                }
                other => return other,
            }
        }
    }
}
