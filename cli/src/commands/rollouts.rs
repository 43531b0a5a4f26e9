//! `cloister rollouts`: one change over all CVMs of an application, one after the other.

use std::time::Duration;

use cloister_management_api::v20260121::CvmInfo;
use cloister_management_api::{Redeployment, Rollout, RolloutMember, RolloutPage};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::approval::{Kind, Needed};
use super::chain::{self, OwnerOptions};
use super::cvms::minute;
use super::follow::{self, Goal};
use super::revisions::AppName;
use super::update::{self, Plan, Shutdown, Wanted};
use super::{Outcome, commit};
use crate::api::{Client, read};
use crate::args::{Waiting, path_segment};
use crate::failure::{Exit, Failure};
use crate::output::{Align, Progress, Table};
use crate::session::Session;

/// Pause between two looks at a rollout.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The subcommands of `rollouts`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Change all CVMs of an application, one after the other, each when the one before it is healthy
    Start(Box<StartArgs>),
    /// List the rollouts of an application, newest first
    List(ListArgs),
    /// Show a rollout and its CVMs
    Show(OneArgs),
    /// Let no further CVM begin
    Pause(OneArgs),
    /// Go on
    Resume(OneArgs),
    /// End it; CVMs that were changed keep what they have, unless told otherwise
    Abort(AbortArgs),
}

/// Arguments of `rollouts start`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister rollouts start my-app -c compose.yaml")]
pub(crate) struct StartArgs {
    #[command(flatten)]
    app: AppName,
    #[command(flatten)]
    wanted: Wanted,
    /// Most CVMs that are changed at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    max_unavailable: u32,
    /// What happens when a CVM cannot be changed: take back those that were, or wait
    #[arg(long, default_value = "roll-back")]
    on_failure: OnFailure,
    #[command(flatten)]
    shutdown: Shutdown,
    /// Transaction that allowed the new document [default: what is allowed now is looked up]
    #[arg(long, value_name = "HASH")]
    transaction: Option<String>,
    #[command(flatten)]
    owner: OwnerOptions,
    #[command(flatten)]
    waiting: Waiting,
}

/// What happens when a CVM cannot be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnFailure {
    /// Take back the CVMs that were changed
    RollBack,
    /// Wait for a decision
    Pause,
}

/// Arguments of `rollouts list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    app: AppName,
}

/// Arguments that name one rollout.
#[derive(Debug, clap::Args)]
pub(crate) struct OneArgs {
    #[command(flatten)]
    app: AppName,
    /// Id of the rollout
    #[arg(value_parser = path_segment())]
    rollout: String,
}

/// Arguments of `rollouts abort`.
#[derive(Debug, clap::Args)]
pub(crate) struct AbortArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Take back the CVMs that were changed
    #[arg(long)]
    roll_back: bool,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let client = session.client()?;
    match command {
        Command::Start(args) => start(*args, &client, session).await,
        Command::List(args) => list(&args, &client, session).await,
        Command::Show(args) => {
            let app = args.app.id(&client).await?;
            let document = client.get(&["apps", &app, "rollouts", &args.rollout], &[]).await?;
            show(&document, session)
        }
        Command::Pause(args) => steer(&args, "pause", None, &client, session).await,
        Command::Resume(args) => steer(&args, "resume", None, &client, session).await,
        Command::Abort(args) => {
            let body = json!({ "roll_back": args.roll_back });
            steer(&args.one, "abort", Some(&body), &client, session).await
        }
    }
}

async fn start(args: StartArgs, client: &Client, session: &Session) -> Outcome {
    let app = args.app.id(client).await?;
    let members = cvms(client, &app).await?;
    let cvm = members.first().ok_or_else(|| Failure::new(Exit::NotFound, format!("{app} has no CVMs")))?;
    let count = members.len();
    let plan = args.wanted.plan(client, &cvm.id.to_string()).await?;
    if !plan.changes() {
        return Err(Failure::usage("nothing was named that should change")
            .hint("for example a compose file: cloister rollouts start APP -c compose.yaml"));
    }
    if !session.output.json {
        session.output.say(update::describe(&plan).trim_end());
    }
    let mut request = plan.request(&args.wanted, &args.owner.chain, client, session).await?;
    request.extend(args.shutdown.members());
    request.insert("max_unavailable".to_owned(), json!(args.max_unavailable));
    let on_failure = if args.on_failure == OnFailure::Pause { "pause" } else { "roll_back" };
    request.insert("on_failure".to_owned(), json!(on_failure));
    let document = args.begin(&app, count, &plan, &Value::Object(request), client, session).await?;
    let rollout: Rollout = read(&document)?;
    let id = rollout.rollout_id.to_string();
    let progress = session.output.progress();
    if args.waiting.no_wait {
        progress.done(&format!("rollout {id} is accepted"));
        if session.output.json {
            session.output.document(&document);
        }
        return Ok(());
    }
    watch(client, &app, &id, args.waiting.timeout, progress, session).await
}

impl StartArgs {
    /// Begins the rollout. Where those who decide have to allow it first, they do so now if they are here, device by
    /// device; no more often than there are CVMs, because the devices are the server's word.
    async fn begin(
        &self,
        app: &str,
        members: usize,
        plan: &Plan,
        request: &Value,
        client: &Client,
        session: &Session,
    ) -> Result<Value, Failure> {
        let path = ["apps", app, "rollouts"];
        let headers = self.transaction.as_deref().map(|hash| ("x-transaction-hash", hash));
        let (mut allowed, began) = (0, Instant::now());
        loop {
            let refused = match client.post_with(&path, &[], headers.as_slice(), request).await {
                Ok(document) => return Ok(document),
                Err(failure) => Needed::of(failure)?,
            };
            let again = |failure: Failure| match failure.exit {
                Exit::AwaitsApproval => failure.hint("then start the rollout again; nothing of it is kept"),
                _ => failure,
            };
            if allowed >= members || began.elapsed() > commit::PATIENCE {
                return Err(again(refused.waits(app, Kind::Update)));
            }
            match self.allow(app, plan, &refused, session).await.map_err(again)? {
                Some(_) => allowed += 1,
                // The chain says so already, and the server does not see it yet.
                None => sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Allows what the server says is missing, which is compared with what is known here; the transaction, if one was
    /// needed.
    async fn allow(
        &self,
        app: &str,
        plan: &Plan,
        needed: &Needed,
        session: &Session,
    ) -> Result<Option<String>, Failure> {
        let (app_id, compose_hash, base) = (plan.app_id()?, plan.compose_hash(), plan.base());
        needed.check(app_id, compose_hash)?;
        let waiting = chain::Waiting { cvm: app, app_id, compose_hash, base, kind: Kind::Update, needed };
        self.owner.allow(&waiting, session).await
    }
}

/// Waits for what a redeployment began: an operation of one CVM, or a rollout.
pub(super) async fn await_change(
    client: &Client,
    app: &str,
    accepted: &Value,
    waiting: Waiting,
    session: &Session,
) -> Outcome {
    let change: Redeployment = read(accepted)?;
    let mut progress = session.output.progress();
    if waiting.no_wait {
        progress.done("the change is accepted");
        if session.output.json {
            session.output.document(accepted);
        }
        return Ok(());
    }
    if let Some(rollout) = change.rollout_id {
        return watch(client, app, &rollout.to_string(), waiting.timeout, progress, session).await;
    }
    let Some(cvm) = with_operation(client, app, &change.correlation_id).await? else {
        progress.done("there was nothing to change");
        return Ok(());
    };
    let (id, name) = (cvm.id.to_string(), cvm.name);
    let followed = follow::follow(client, &id, Goal::Running, waiting.timeout, &mut progress).await;
    update::of_operation(client, &id, &name, &change.correlation_id, followed).await?;
    let (document, detail) = follow::detail(client, &id).await?;
    progress.done(&format!("{name} is {} with the former configuration", detail.status));
    if session.output.json {
        session.output.document(&document);
    }
    Ok(())
}

/// The CVM of an application that an operation works on, or worked on last.
async fn with_operation(
    client: &Client,
    app: &str,
    correlation_id: &str,
) -> Result<Option<CvmInfo>, Failure> {
    for cvm in cvms(client, app).await? {
        let id = cvm.id.to_string();
        let page = client.get(&["cvms", &id, "operations"], &[("limit", "5")]).await?;
        let items = page.get("items").and_then(Value::as_array);
        if items.into_iter().flatten().any(|item| item["correlation_id"] == correlation_id) {
            return Ok(Some(cvm));
        }
    }
    Ok(None)
}

async fn cvms(client: &Client, app: &str) -> Result<Vec<CvmInfo>, Failure> {
    read(&client.get(&["apps", app, "cvms"], &[]).await?)
}

async fn watch(
    client: &Client,
    app: &str,
    id: &str,
    seconds: u64,
    mut progress: Progress,
    session: &Session,
) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        let document = client.get(&["apps", app, "rollouts", id], &[]).await?;
        let rollout: Rollout = read(&document)?;
        match rollout.state.as_str() {
            "completed" => {
                progress.done(&format!("all {} CVMs are changed", rollout.members.len()));
                return show(&document, session);
            }
            "running" | "rolling_back" | "aborting" => progress.phase(&phase(&rollout)),
            _ => return Err(stood_still(&rollout, app, id)),
        }
        if Instant::now() > deadline {
            return Err(Failure::new(
                Exit::TimedOut,
                format!("rollout {id} is not done after {seconds} s; it goes on"),
            )
            .hint(format!("see how far it is: cloister rollouts show {app} {id}")));
        }
        sleep(LOOK_EVERY).await;
    }
}

fn phase(rollout: &Rollout) -> String {
    let settled =
        |member: &&RolloutMember| !matches!(member.state.as_str(), "pending" | "updating" | "restoring");
    let done = rollout.members.iter().filter(settled).count();
    let now: Vec<_> = rollout
        .members
        .iter()
        .filter(|member| matches!(member.state.as_str(), "updating" | "restoring"))
        .map(|member| format!("{} is {}", member.name, member.cvm_status.replace('_', " ")))
        .collect();
    let verb = if rollout.state == "running" { "changing" } else { "taking back" };
    format!("{verb}, {done} of {} done: {}", rollout.members.len(), now.join(", "))
}

fn stood_still(rollout: &Rollout, app: &str, id: &str) -> Failure {
    let reason = rollout.reason.as_deref().unwrap_or("no reason was given");
    let failure =
        Failure::new(Exit::Failed, format!("rollout {id} is {}: {reason}", rollout.state.replace('_', " ")))
            .hint(format!("see its CVMs: cloister rollouts show {app} {id}"));
    if rollout.state.ends_with("paused") {
        return failure
            .hint(format!("go on: cloister rollouts resume {app} {id}"))
            .hint(format!("or end it: cloister rollouts abort {app} {id}"));
    }
    failure
}

async fn steer(
    args: &OneArgs,
    verb: &str,
    body: Option<&Value>,
    client: &Client,
    session: &Session,
) -> Outcome {
    let app = args.app.id(client).await?;
    let document = client.post(&["apps", &app, "rollouts", &args.rollout, verb], body).await?;
    show(&document, session)
}

async fn list(args: &ListArgs, client: &Client, session: &Session) -> Outcome {
    let app = args.app.id(client).await?;
    let document = client.get(&["apps", &app, "rollouts"], &[]).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("ROLLOUT", Align::Left),
        ("STARTED", Align::Left),
        ("STATE", Align::Left),
        ("CVMS", Align::Right),
        ("REASON", Align::Left),
    ]);
    for rollout in read::<RolloutPage>(&document)?.rollouts {
        table.row([
            rollout.rollout_id.to_string(),
            minute(rollout.created_at),
            rollout.state,
            rollout.members.len().to_string(),
            rollout.reason.unwrap_or_default(),
        ]);
    }
    session.output.table(&table, "There were no rollouts.");
    Ok(())
}

fn show(document: &Value, session: &Session) -> Outcome {
    if session.output.json {
        session.output.document(document);
        return Ok(());
    }
    let rollout: Rollout = read(document)?;
    session.output.fields(&[
        ("Rollout", Some(rollout.rollout_id.to_string())),
        ("State", Some(rollout.state)),
        ("Reason", rollout.reason),
        ("Started", Some(minute(rollout.created_at))),
        ("Ended", rollout.completed_at.map(minute)),
    ]);
    let mut table = Table::new(&[
        ("CVM", Align::Left),
        ("STATE", Align::Left),
        ("STATUS", Align::Left),
        ("HEALTH", Align::Left),
        ("REASON", Align::Left),
    ]);
    for member in rollout.members {
        table.row([
            member.name,
            member.state,
            member.cvm_status,
            member.health.unwrap_or_default(),
            member.error.unwrap_or_default(),
        ]);
    }
    session.output.table(&table, "It has no CVMs.");
    Ok(())
}
