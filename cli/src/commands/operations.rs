//! `cloister operations`: the history of a CVM.

use cloister_management_api::{CancelResponse, Operation, OperationPage};

use super::Outcome;
use super::cvms::minute;
use crate::api::read;
use crate::args::CvmName;
use crate::output::{Align, Table};
use crate::session::Session;

/// The subcommands of `operations`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the operations on a CVM, newest first
    List(ListArgs),
    /// Cancel the operation that is in progress
    Cancel(CancelArgs),
}

/// Arguments of `operations list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    name: CvmName,
    /// How many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Go on where an earlier list ended (its `next_cursor`)
    #[arg(long)]
    cursor: Option<String>,
}

/// Arguments of `operations cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    name: CvmName,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    match command {
        Command::List(args) => list(args, session).await,
        Command::Cancel(args) => cancel(args, session).await,
    }
}

async fn list(args: ListArgs, session: &Session) -> Outcome {
    let limit = args.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    query.extend(args.cursor.as_deref().map(|cursor| ("cursor", cursor)));
    let document = session.client()?.get(&["cvms", &args.name.cvm, "operations"], &query).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let page: OperationPage = read(&document)?;
    session.output.table(&table(page.items), "There are no operations.");
    if let Some(cursor) = page.next_cursor {
        session.output.say(&format!("more: cloister operations list {} --cursor {cursor}", args.name.cvm));
    }
    Ok(())
}

fn table(operations: Vec<Operation>) -> Table {
    let mut table = Table::new(&[
        ("STARTED", Align::Left),
        ("OPERATION", Align::Left),
        ("STATUS", Align::Left),
        ("TOOK", Align::Right),
        ("BY", Align::Left),
        ("CORRELATION ID", Align::Left),
        ("REASON", Align::Left),
    ]);
    for operation in operations {
        table.row([
            minute(operation.started_at),
            operation.operation_type,
            operation.status,
            operation
                .duration_ms
                .map(|ms| format!("{}.{} s", ms / 1000, ms % 1000 / 100))
                .unwrap_or_default(),
            operation.triggered_by_username.unwrap_or_default(),
            operation.correlation_id.to_string(),
            operation.error_message.unwrap_or_default(),
        ]);
    }
    table
}

async fn cancel(args: CancelArgs, session: &Session) -> Outcome {
    let cvm = args.name.cvm.as_str();
    let document = session.client()?.post(&["cvms", cvm, "operations", "cancel"], None).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    session.output.say(&if read::<CancelResponse>(&document)?.cancelled {
        format!("The operation on {cvm} is being cancelled: cloister operations list {cvm}")
    } else {
        format!("No operation is in progress on {cvm}.")
    });
    Ok(())
}
