//! `cloister revisions`: the configurations that an application's CVMs had.

use cloister_management_api::{
    Revision, RevisionDetail, RevisionDiff, RevisionDocument, RevisionPage, RevisionStanding,
};
use serde_json::{Value, json};

use super::Outcome;
use super::cvms::minute;
use super::rollouts;
use crate::api::{Client, read};
use crate::args::{Waiting, path_segment};
use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::session::Session;

/// The subcommands of `revisions`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the configurations that an application had, newest first
    List(ListArgs),
    /// Show one configuration
    Show(ShowArgs),
    /// Say what differs between two configurations
    Diff(DiffArgs),
    /// Bring a former configuration back
    Redeploy(RedeployArgs),
}

/// How a person names an application.
#[derive(Debug, clap::Args)]
pub(crate) struct AppName {
    /// App id, or the name of one of its CVMs
    #[arg(value_name = "APP", value_parser = path_segment())]
    app: String,
}

impl From<String> for AppName {
    fn from(app: String) -> Self {
        Self { app }
    }
}

impl AppName {
    /// The app id: that of the CVM where the text is no app id.
    pub(super) async fn id(&self, client: &Client) -> Result<String, Failure> {
        let digits = self.app.strip_prefix("app_").unwrap_or(&self.app);
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        if digits.len() == 40 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(digits.to_ascii_lowercase());
        }
        let (_, cvm) = super::follow::detail(client, &self.app).await?;
        let id = cvm.app_id.ok_or_else(|| Failure::usage(format!("{} has no application", self.app)))?;
        Ok(id.to_string())
    }
}

/// Arguments of `revisions list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    app: AppName,
    /// How many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

/// Arguments of `revisions show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    app: AppName,
    /// Id of the revision
    #[arg(value_parser = path_segment())]
    revision: String,
    /// Print only the exact text whose SHA-256 is the compose hash
    #[arg(long)]
    raw: bool,
}

/// Arguments of `revisions diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    app: AppName,
    /// Id of the later revision
    #[arg(value_parser = path_segment())]
    revision: String,
    /// Id of the earlier one, or `current` for what the CVM has now
    #[arg(long, value_name = "REVISION", default_value = "current", value_parser = path_segment())]
    against: String,
}

/// Arguments of `revisions redeploy`.
#[derive(Debug, clap::Args)]
pub(crate) struct RedeployArgs {
    #[command(flatten)]
    app: AppName,
    /// Id of the revision
    #[arg(value_parser = path_segment())]
    revision: String,
    /// UUIDs of the CVMs that get it, where the application has several
    #[arg(long, value_name = "UUID", value_delimiter = ',')]
    cvms: Vec<String>,
    /// Go on although the revision's environment is gone or was sealed to another key
    #[arg(long)]
    allow_env_mismatch: bool,
    /// Transaction that allowed its document [default: what is allowed now is looked up]
    #[arg(long, value_name = "HASH")]
    transaction: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    match command {
        Command::List(args) => list(args, session).await,
        Command::Show(args) => show(args, session).await,
        Command::Diff(args) => diff(args, session).await,
        Command::Redeploy(args) => redeploy(args, session).await,
    }
}

async fn list(args: ListArgs, session: &Session) -> Outcome {
    let client = session.client()?;
    let app = args.app.id(&client).await?;
    let limit = args.limit.to_string();
    let document = client.get(&["apps", &app, "revisions"], &[("page_size", &limit)]).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("REVISION", Align::Left),
        ("CREATED", Align::Left),
        ("CVM", Align::Left),
        ("BY", Align::Left),
        ("STATE", Align::Left),
        ("COMPOSE HASH", Align::Left),
    ]);
    for revision in read::<RevisionPage>(&document)?.revisions {
        table.row(row(revision));
    }
    session.output.table(&table, "The application has no revisions.");
    Ok(())
}

fn row(revision: Revision) -> [String; 6] {
    [
        revision.revision_id.to_string(),
        minute(revision.created_at),
        revision.cvm.and_then(|cvm| cvm.name).unwrap_or_default(),
        revision.triggered_by.and_then(|user| user.username).unwrap_or_default(),
        standing(revision.state).to_owned(),
        revision.compose_hash.to_string(),
    ]
}

const fn standing(state: RevisionStanding) -> &'static str {
    match state {
        RevisionStanding::Current => "current",
        RevisionStanding::Superseded => "superseded",
        RevisionStanding::RolledBack => "rolled back",
    }
}

async fn show(args: ShowArgs, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let app = args.app.id(&client).await?;
    let path = ["apps", app.as_str(), "revisions", args.revision.as_str()];
    if args.raw {
        let document = client.get(&path, &[("raw_compose_file", "true")]).await?;
        output.data(&read::<String>(document.get("compose_file").unwrap_or(&Value::Null))?);
        return Ok(());
    }
    let document = client.get(&path, &[]).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let detail: RevisionDetail = read(&document)?;
    let revision = detail.revision;
    let size = format!("{} vCPU, {} MB memory, {} GB disk", detail.vcpu, detail.memory, detail.disk_size);
    let environment = if detail.encrypted_env.is_empty() { "none" } else { "sealed" };
    output.fields(&[
        ("Revision", Some(revision.revision_id.to_string())),
        ("State", Some(standing(revision.state).to_owned())),
        ("CVM", revision.cvm.and_then(|cvm| cvm.name)),
        ("Created", Some(minute(revision.created_at))),
        ("Operation", revision.trace_id),
        ("Compose hash", Some(revision.compose_hash.to_string())),
        ("Guest image", Some(detail.os_image)),
        ("Size", Some(size)),
        ("Environment", Some(environment.to_owned())),
    ]);
    let RevisionDocument::Members(members) = detail.compose_file else { return Ok(()) };
    let program = ["docker_compose_file", "bash_script"]
        .into_iter()
        .find_map(|member| members.get(member).and_then(Value::as_str));
    if let Some(program) = program {
        output.data(&format!("\n{program}"));
    }
    Ok(())
}

async fn diff(args: DiffArgs, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let app = args.app.id(&client).await?;
    let path = ["apps", app.as_str(), "revisions", args.revision.as_str(), "diff"];
    let document = client.get(&path, &[("against", &args.against)]).await?;
    if output.json {
        output.document(&document);
    } else {
        output.data(&read::<RevisionDiff>(&document)?.summary);
    }
    Ok(())
}

async fn redeploy(args: RedeployArgs, session: &Session) -> Outcome {
    let client = session.client()?;
    let app = args.app.id(&client).await?;
    let mut body = json!({ "allow_env_mismatch": args.allow_env_mismatch });
    if let (Some(members), false) = (body.as_object_mut(), args.cvms.is_empty()) {
        members.insert("vm_uuids".to_owned(), json!(args.cvms));
    }
    let path = ["apps", app.as_str(), "revisions", args.revision.as_str(), "redeploy"];
    let transaction = args.transaction.as_deref().map(|hash| ("transaction_hash", hash));
    let accepted = client.post_with(&path, transaction.as_slice(), &[], &body).await?;
    rollouts::await_change(&client, &app, &accepted, args.waiting, session).await
}
