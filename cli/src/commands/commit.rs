//! `cloister commit`: carry out a change that waited until it was allowed.

use cloister_management_api::{CommittedUpdate, Vm, VmId};

use super::Outcome;
use super::approval::{self, Kind};
use super::follow::{self, Goal};
use super::update::of_operation;
use crate::api::{Client, read};
use crate::args::{CvmName, Waiting};
use crate::output::Progress;
use crate::session::Session;

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
    #[command(flatten)]
    waiting: Waiting,
}

/// Commits, and waits until the change is made.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let client = session.client()?;
    let kind = if args.replica { Kind::Replica } else { Kind::Update };
    let mut progress = session.output.progress();
    progress.phase("committing");
    let change = Prepared { cvm: &args.name.cvm, kind, token: &args.token };
    change.carry_out(args.transaction.as_deref(), args.waiting, &client, progress, session).await
}

/// A change that was prepared.
pub(super) struct Prepared<'a> {
    /// The CVM that is changed, or that the new one is like.
    pub(super) cvm: &'a str,
    pub(super) kind: Kind,
    pub(super) token: &'a str,
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
        let accepted = approval::commit(client, self.cvm, self.kind, self.token, transaction).await?;
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
        let followed = follow::follow(client, &cvm, Goal::Running, waiting.timeout, &mut progress).await;
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
}
