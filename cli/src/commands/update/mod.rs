//! `cloister update` and `cloister diff`: give a CVM another configuration, and see first what that changes.

mod change;
mod outcome;
mod words;

use serde_json::{Value, json};

use super::approval::{Kind, Needed};
use super::chain::{self, OwnerOptions};
use super::commit::{self, Prepared};
use super::{Outcome, follow};
use crate::api::Client;
use crate::args::{CvmName, Waiting};
use crate::failure::Failure;
use crate::session::Session;

pub(super) use self::change::{Plan, Wanted};
pub(super) use self::outcome::of_operation;
pub(super) use self::words::describe;

/// Arguments of `update`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister update my-app -c compose.yaml")]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    shutdown: Shutdown,
    /// Whether the CVM gets its last good configuration back when the new one is not healthy in time; stays
    /// so for later changes
    #[arg(long, value_name = "BOOL")]
    rollback: Option<bool>,
    /// Seconds that the application gets to become healthy after its boot, 30 to 3600; stays so
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(30..=3600))]
    health_timeout: Option<u32>,
    /// Where somebody has to allow the change, have it prepared only, even if it is allowed; it waits for
    /// `cloister commit`
    #[arg(long)]
    prepare_only: bool,
    #[command(flatten)]
    owner: OwnerOptions,
    #[command(flatten)]
    waiting: Waiting,
}

/// How the application is brought to its end before it starts anew.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Shutdown {
    /// Seconds that the application gets to end, 10 to 1200
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(10..=1200))]
    shutdown_timeout: Option<u32>,
    /// Fail when the application does not end in time, instead of taking the power away
    #[arg(long)]
    never_force_stop: bool,
}

impl Shutdown {
    /// The members of a request for a change.
    pub(super) fn members(self) -> Vec<(String, Value)> {
        let mut members = vec![("allow_force_stop".to_owned(), json!(!self.never_force_stop))];
        members.extend(self.shutdown_timeout.map(|seconds| ("shutdown_timeout".to_owned(), json!(seconds))));
        members
    }
}

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister diff my-app -c compose.yaml")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    name: CvmName,
    #[command(flatten)]
    wanted: Wanted,
}

/// Shows what an update would change, and changes nothing.
pub(super) async fn diff(args: DiffArgs, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let plan = args.wanted.plan(&client, &args.name.cvm).await?;
    if output.json {
        output.document(&words::document(&plan));
        return Ok(());
    }
    output.data(&words::describe(&plan));
    Ok(())
}

/// Changes the CVM and waits until it is up with the new configuration, or has its last good one back.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let plan = args.wanted.plan(&client, &args.name.cvm).await?;
    let policy = args.policy();
    if !plan.changes() && policy.is_empty() {
        return Err(Failure::usage("nothing was named that should change")
            .hint("for example a compose file: cloister update CVM -c compose.yaml"));
    }
    let name = plan.cvm.info.name.clone();
    let id = plan.cvm.info.id.to_string();
    if !output.json && plan.changes() {
        output.say(words::describe(&plan).trim_end());
    }
    let mut progress = output.progress();
    let body = args.body(&plan, policy, &client, session).await?;
    progress.phase("asking for the change");
    let hash = plan.compose_hash().to_string();
    let mut headers = vec![("x-compose-hash", hash.as_str())];
    // With the hash alone the server takes the document for one that is allowed already.
    if args.prepare_only || plan.before.compose_hash() != plan.compose_hash() {
        headers.push(("x-prepare-only", "true"));
    }
    let accepted = match client.patch_with(&["cvms", &id], &body, &headers).await {
        Ok(accepted) => accepted,
        Err(failure) => {
            drop(progress);
            return args.once_allowed(&plan, Needed::of(failure)?, &client, session).await;
        }
    };
    let correlation_id = accepted.get("correlation_id").and_then(Value::as_str).unwrap_or_default();
    if args.waiting.no_wait || correlation_id.is_empty() {
        let words = if correlation_id.is_empty() { "is as you want it" } else { "the change is accepted" };
        progress.done(&format!("{name}: {words}"));
        if output.json {
            output.document(&accepted);
        }
        return Ok(());
    }
    let followed = follow::follow(&client, &id, plan.goal(), args.waiting.timeout, &mut progress).await;
    // What the operation says is more than the status, in which a CVM may be with its former configuration.
    outcome::of_operation(&client, &id, &name, correlation_id, followed).await?;
    let (document, detail) = follow::detail(&client, &id).await?;
    progress.done(&format!("{name} is {} with the new configuration", detail.status));
    if output.json {
        output.document(&document);
    }
    Ok(())
}

impl Args {
    /// Has those who decide allow the change, if they are here, and then has it carried out.
    async fn once_allowed(&self, plan: &Plan, needed: Needed, client: &Client, session: &Session) -> Outcome {
        let name = &plan.cvm.info.name;
        let kind = Kind::Update;
        let (app_id, compose_hash) = (plan.app_id()?, plan.compose_hash());
        needed.check(app_id, compose_hash)?;
        if self.prepare_only {
            return Err(needed.waits(name, kind));
        }
        let base = plan.base();
        let waiting = chain::Waiting { cvm: name, app_id, compose_hash, base, kind, needed: &needed };
        let transaction = self.owner.allow(&waiting, session).await?;
        let token = needed.commit_token.as_deref().ok_or_else(|| needed.waits(name, kind))?;
        let goal = plan.goal();
        let change = Prepared { cvm: name, kind, token, goal, patience: commit::PATIENCE };
        let progress = session.output.progress();
        change.carry_out(transaction.as_deref(), self.waiting, client, progress, session).await
    }

    /// Members that concern how changes are made.
    fn policy(&self) -> Vec<(&'static str, Value)> {
        let members =
            [("rollback_on_failure", json!(self.rollback)), ("health_timeout", json!(self.health_timeout))];
        members.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }

    /// The request.
    async fn body(
        &self,
        plan: &Plan,
        policy: Vec<(&'static str, Value)>,
        client: &Client,
        session: &Session,
    ) -> Result<Value, Failure> {
        let mut members = plan.request(&self.wanted, &self.owner.chain, client, session).await?;
        members.extend(policy.into_iter().map(|(name, value)| (name.to_owned(), value)));
        members.extend(self.shutdown.members());
        Ok(Value::Object(members))
    }
}
