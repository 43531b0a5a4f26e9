//! `cloister tokens`: API keys of the workspace.

use cloister_management_api::{DeviceDecision, KeyScope, Token};
use jiff::Timestamp;
use serde_json::json;

use super::Outcome;
use super::cvms::minute;
use crate::api::read;
use crate::args::path_segment;
use crate::output::{Align, Table};
use crate::session::Session;

const TOKENS: [&str; 1] = ["tokens"];
const DECISION: [&str; 3] = ["auth", "device", "decision"];

/// The subcommands of `tokens`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the workspace's API keys
    List(ListArgs),
    /// Make an API key; its secret is printed once
    Create(CreateArgs),
    /// End an API key
    Delete(DeleteArgs),
    /// Let a device in that shows a code: it gets an API key for 90 days
    Approve(ApproveArgs),
    /// Refuse a device that shows a code
    Deny(DenyArgs),
}

/// Arguments of `tokens list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

/// Arguments of `tokens create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister tokens create ci --scope deploy --days 90 > key.txt")]
pub(crate) struct CreateArgs {
    /// What you call it
    name: String,
    /// What it may do [default: what your key may]
    #[arg(long, value_enum)]
    scope: Option<Scope>,
    /// Days until it stops working [default: it works until it is deleted]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=365))]
    days: Option<u32>,
}

/// Arguments of `tokens delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Its id, see `cloister tokens list`
    #[arg(value_parser = path_segment())]
    id: String,
}

/// Arguments of `tokens approve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Approve only what you began yourself a moment ago, and that shows the same code.")]
pub(crate) struct ApproveArgs {
    /// What the device shows, such as BCDF-GHJK
    #[arg(value_parser = path_segment())]
    code: String,
    /// What its key may do [default: deploy]
    #[arg(long, value_enum)]
    scope: Option<Scope>,
}

/// Arguments of `tokens deny`.
#[derive(Debug, clap::Args)]
pub(crate) struct DenyArgs {
    /// What the device shows, such as BCDF-GHJK
    #[arg(value_parser = path_segment())]
    code: String,
}

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scope {
    /// Ask the inference gateway, and nothing else
    Inference,
    /// Look at everything, and nothing else
    Read,
    /// All of these, and change CVMs, applications, images and SSH keys
    Deploy,
    /// All of these, and manage keys, secrets, owners and money, read the audit log, administer
    Admin,
}

impl From<Scope> for KeyScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Inference => Self::Inference,
            Scope::Read => Self::Read,
            Scope::Deploy => Self::Deploy,
            Scope::Admin => Self::Admin,
        }
    }
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    match command {
        Command::List(_) => {
            let document = client.get(&TOKENS, &[]).await?;
            if output.json {
                output.document(&document);
            } else {
                output.table(&table(read(&document)?), "There are no keys.");
            }
        }
        Command::Create(args) => {
            let scope = args.scope.map(KeyScope::from);
            let body = json!({ "name": args.name, "scope": scope, "expires_in_days": args.days });
            let document = client.post(&TOKENS, Some(&body)).await?;
            if output.json {
                output.document(&document);
                return Ok(());
            }
            let made: Token = read(&document)?;
            output.line(made.token.as_deref().unwrap_or_default());
            let until = made.expires_at.map_or_else(
                || "until it is deleted".to_owned(),
                |at: Timestamp| format!("until {} UTC", minute(at)),
            );
            output.say(&format!("A key of scope {}, {until}. It is not shown again.", made.scope));
        }
        Command::Delete(args) => {
            let document = client.delete(&[TOKENS[0], &args.id]).await?;
            if output.json {
                output.document(&document);
            } else {
                output.say(&format!("{} does not work any more.", args.id));
            }
        }
        Command::Approve(args) => decide(session, &args.code, true, args.scope).await?,
        Command::Deny(args) => decide(session, &args.code, false, None).await?,
    }
    Ok(())
}

/// Lets a device in, with what its key may do, or refuses it.
async fn decide(session: &Session, code: &str, approve: bool, scope: Option<Scope>) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let scope = scope.map(KeyScope::from);
    let body = json!({ "user_code": code, "approve": approve, "scope": scope });
    let document = client.post(&DECISION, Some(&body)).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let decided: DeviceDecision = read(&document)?;
    output.say(&match decided.scope {
        Some(scope) => format!("{} was let in, with a key of scope {scope} for 90 days.", decided.client_id),
        None => format!("{} was refused.", decided.client_id),
    });
    Ok(())
}

fn table(keys: Vec<Token>) -> Table {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("NAME", Align::Left),
        ("KEY", Align::Left),
        ("SCOPE", Align::Left),
        ("CREATED", Align::Left),
        ("LAST USED", Align::Left),
        ("EXPIRES", Align::Left),
    ]);
    for key in keys {
        let shown = |at: Option<Timestamp>| at.map(minute).unwrap_or_default();
        table.row([
            key.id.to_string(),
            key.name,
            format!("{}…", key.token_prefix),
            key.scope.to_string(),
            minute(key.created_at),
            shown(key.last_used_at),
            shown(key.expires_at),
        ]);
    }
    table
}
