//! `cloister nodes`: the machines that run CVMs.

use cloister_management_api::{AdminNode, NodeDrain, NodeInvitation, NodeStatus};
use serde_json::{Value, json};

use super::Outcome;
use super::cvms::minute;
use crate::api::{Client, read};
use crate::args::path_segment;
use crate::output::{Align, Table};
use crate::session::Session;

const NODES: [&str; 2] = ["admin", "nodes"];

/// The subcommands of `nodes`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the nodes with their state and capacity
    List(ListArgs),
    /// Print a token with which one new node can join
    Invite(InviteArgs),
    /// Keep new CVMs and changes away from a node, or let them come again
    Maintenance(MaintenanceArgs),
    /// Move CVMs away from a node as far as other replicas allow, and say which ones stay
    Drain(DrainArgs),
    /// Forget a node that has no CVMs
    Remove(RemoveArgs),
}

/// Arguments of `nodes drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Begins, or shows how far it is when it was begun; new CVMs go elsewhere until --end")]
pub(crate) struct DrainArgs {
    /// Name or number of the node
    #[arg(value_parser = path_segment())]
    node: String,
    /// Only show how far it is
    #[arg(long)]
    status: bool,
    /// Let CVMs come again
    #[arg(long, conflicts_with = "status")]
    end: bool,
}

/// Arguments of `nodes list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

/// Arguments of `nodes invite`.
#[derive(Debug, clap::Args)]
#[command(after_help = "On the new node: cloister serve node --control-plane HOST:PORT … < token.txt")]
pub(crate) struct InviteArgs {}

/// Arguments of `nodes maintenance`.
#[derive(Debug, clap::Args)]
pub(crate) struct MaintenanceArgs {
    /// Name or number of the node
    #[arg(value_parser = path_segment())]
    node: String,
    /// Whether maintenance begins or ends
    state: Switch,
}

/// Arguments of `nodes remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Name or number of the node
    #[arg(value_parser = path_segment())]
    node: String,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// Begin
    On,
    /// End
    Off,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let (document, words) = match command {
        Command::List(_) => return list(&client.get(&NODES, &[]).await?, session),
        Command::Invite(_) => {
            return invite(&client.post(&[NODES[0], NODES[1], "invitations"], None).await?, session);
        }
        Command::Drain(args) => return drain(&args, &client, session).await,
        Command::Maintenance(args) => {
            let body = json!({ "maintenance": args.state == Switch::On });
            let document = client.post(&[NODES[0], NODES[1], &args.node, "maintenance"], Some(&body)).await?;
            let words = match args.state {
                Switch::On => {
                    format!("{} takes no new CVMs and no changes; its CVMs keep running.", args.node)
                }
                Switch::Off => format!("{} takes CVMs again.", args.node),
            };
            (document, words)
        }
        Command::Remove(args) => {
            let document = client.delete(&[NODES[0], NODES[1], &args.node]).await?;
            (document, format!("{} is removed; its certificate is no longer accepted.", args.node))
        }
    };
    if output.json {
        output.document(&document);
    } else {
        output.say(&words);
    }
    Ok(())
}

fn list(document: &Value, session: &Session) -> Outcome {
    if session.output.json {
        session.output.document(document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("ID", Align::Right),
        ("NAME", Align::Left),
        ("STATUS", Align::Left),
        ("REGION", Align::Left),
        ("PLATFORM", Align::Left),
        ("CVMS", Align::Right),
        ("VERSION", Align::Left),
    ]);
    for node in read::<Vec<AdminNode>>(document)? {
        table.row([
            node.id.to_string(),
            node.name,
            status(node.status).to_owned(),
            node.region.unwrap_or_default(),
            node.platform.unwrap_or_default(),
            node.cvm_count.to_string(),
            node.version.unwrap_or_default(),
        ]);
    }
    session.output.table(&table, "There are no nodes. Invite one: cloister nodes invite");
    Ok(())
}

async fn drain(args: &DrainArgs, client: &Client, session: &Session) -> Outcome {
    let path = [NODES[0], NODES[1], args.node.as_str(), "drain"];
    let document = match (args.status, args.end) {
        (true, _) => client.get(&path, &[]).await?,
        (_, true) => client.delete(&path).await?,
        _ => client.post(&path, None).await?,
    };
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    if args.end {
        session
            .output
            .say(&format!("{} takes CVMs again; a move that was begun is brought to its end.", args.node));
        return Ok(());
    }
    let drain: NodeDrain = read(&document)?;
    let mut table = Table::new(&[
        ("CVM", Align::Left),
        ("STATE", Align::Left),
        ("REPLACED BY", Align::Left),
        ("REASON", Align::Left),
    ]);
    for cvm in drain.cvms {
        let replacement = cvm.replacement.map(|uuid| uuid.to_string()).unwrap_or_default();
        table.row([cvm.name, cvm.state, replacement, cvm.reason.unwrap_or_default()]);
    }
    session.output.table(&table, "The node has no CVMs.");
    session.output.say(&format!("{} is {}.", drain.node, drain.state));
    Ok(())
}

fn invite(document: &Value, session: &Session) -> Outcome {
    if session.output.json {
        session.output.document(document);
        return Ok(());
    }
    let invitation: NodeInvitation = read(document)?;
    session.output.line(&invitation.join_token);
    session.output.say(&format!("For one node, until {} UTC.", minute(invitation.expires_at)));
    Ok(())
}

const fn status(status: NodeStatus) -> &'static str {
    match status {
        NodeStatus::Online => "ONLINE",
        NodeStatus::Offline => "OFFLINE",
        NodeStatus::Maintenance => "MAINTENANCE",
    }
}
