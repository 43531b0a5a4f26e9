//! `cloister audit`: who changed what, and whether the log of that is whole.

mod verify;

use std::time::Duration;

use cloister_management_api::AuditPage;
use serde_json::Value;

use super::Outcome;
use super::cvms::minute;
use crate::api::read;
use crate::output::{Align, Table};
use crate::session::Session;

/// How long a whole log may take to arrive.
const LIFETIME: Duration = Duration::from_hours(6);

/// The subcommands of `audit`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List changes, newest first
    List(ListArgs),
    /// Print the whole log, one JSON record in each line, oldest first
    Export(ExportArgs),
    /// Check that nothing in the log was changed, removed or added
    Verify(verify::Args),
}

/// Whose log.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Whose {
    /// The log of the installation instead of the workspace's (for administrators)
    #[arg(long)]
    installation: bool,
}

impl Whose {
    /// The path of the log, with what is below it.
    fn path(self, below: Option<&'static str>) -> Vec<&'static str> {
        let above = if self.installation { "admin" } else { "workspace" };
        [above, "audit"].into_iter().chain(below).collect()
    }
}

/// Arguments of `audit list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    whose: Whose,
    /// Only changes by this user, API key (its id), or part of the system
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// Only changes by this operation, such as `delete_cvm`
    #[arg(long)]
    operation: Option<String>,
    /// Only changes of what has this id; a CVM's is its UUID
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// Only changes at this time or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: Option<jiff::Timestamp>,
    /// Only changes at this time or earlier
    #[arg(long, value_name = "TIME")]
    until: Option<jiff::Timestamp>,
    /// Most changes to list
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Continue behind a page: the cursor that it printed
    #[arg(long)]
    cursor: Option<String>,
}

/// Arguments of `audit export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister audit export > log.jsonl")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    whose: Whose,
    /// Only records behind this number
    #[arg(long, default_value_t = 0)]
    after: u32,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    match command {
        Command::List(args) => list(args, session).await,
        Command::Export(args) => {
            let (client, after) = (session.client()?, args.after.to_string());
            let take = |piece: &[u8]| session.output.bytes(piece);
            client.copy(&args.whose.path(Some("export")), &[("after", &after)], LIFETIME, take).await
        }
        Command::Verify(args) => verify::run(args, session).await,
    }
}

async fn list(args: ListArgs, session: &Session) -> Outcome {
    let (since, until) = (args.since.map(|at| at.to_string()), args.until.map(|at| at.to_string()));
    let limit = args.limit.to_string();
    let asked = [
        ("actor", args.actor.as_deref()),
        ("operation", args.operation.as_deref()),
        ("target", args.target.as_deref()),
        ("start_time", since.as_deref()),
        ("end_time", until.as_deref()),
        ("limit", Some(limit.as_str())),
        ("cursor", args.cursor.as_deref()),
    ];
    let query: Vec<_> = asked.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let document: Value = session.client()?.get(&args.whose.path(None), &query).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let page: AuditPage = read(&document)?;
    let mut table = Table::new(&[
        ("#", Align::Right),
        ("TIME", Align::Left),
        ("WHO", Align::Left),
        ("KEY", Align::Left),
        ("OPERATION", Align::Left),
        ("TARGET", Align::Left),
    ]);
    for record in page.items {
        let actor = record.actor;
        let who = match actor.kind.as_str() {
            "key" | "person" => actor.name.unwrap_or_default(),
            "commit_token" => "commit token".to_owned(),
            "stranger" => "stranger".to_owned(),
            kind => format!("{kind}: {}", actor.name.unwrap_or_default()),
        };
        table.row([
            record.sequence.to_string(),
            minute(record.time),
            who,
            actor.key_prefix.map(|prefix| format!("{prefix}…")).unwrap_or_default(),
            record.operation,
            format!("{} {}", record.target.kind, record.target.id),
        ]);
    }
    session.output.table(&table, "Nothing was changed.");
    if let Some(cursor) = page.next_cursor {
        session.output.say(&format!("More: --cursor {cursor}"));
    }
    Ok(())
}
