//! `cloister tokens`: API keys of the workspace.

use cloister_management_api::{KeyScope, Token};
use jiff::Timestamp;
use serde_json::json;

use super::Outcome;
use super::cvms::minute;
use crate::api::read;
use crate::args::path_segment;
use crate::output::{Align, Table};
use crate::session::Session;

const TOKENS: [&str; 1] = ["tokens"];

/// The subcommands of `tokens`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the workspace's API keys
    List(ListArgs),
    /// Make an API key; its secret is printed once
    Create(CreateArgs),
    /// End an API key
    Delete(DeleteArgs),
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
    }
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
