//! `cloister ssh-keys`: public keys that applications may let in.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::Outcome;
use super::cvms::minute;
use super::deploy::read_text;
use crate::api::read;
use crate::args::path_segment;
use crate::output::{Align, Table};
use crate::session::Session;

const KEYS: [&str; 2] = ["user", "ssh-keys"];

/// The subcommands of `ssh-keys`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List your public keys
    List(ListArgs),
    /// Keep a public key
    Add(AddArgs),
    /// Forget a public key
    Remove(RemoveArgs),
}

/// Arguments of `ssh-keys list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

/// Arguments of `ssh-keys add`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister ssh-keys add laptop ~/.ssh/id_ed25519.pub")]
pub(crate) struct AddArgs {
    /// What you call it
    name: String,
    /// File with the public key in OpenSSH's form
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Arguments of `ssh-keys remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Its id, see `cloister ssh-keys list`
    #[arg(value_parser = path_segment())]
    id: String,
}

#[derive(Deserialize)]
struct Key {
    id: String,
    name: String,
    #[serde(rename = "key_type")]
    kind: String,
    fingerprint: String,
    created_at: Timestamp,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let (document, words) = match command {
        Command::List(_) => (client.get(&KEYS, &[]).await?, None),
        Command::Add(args) => {
            let text = read_text(&args.file)?;
            let body = json!({ "name": args.name, "public_key": text.trim() });
            (client.post(&KEYS, Some(&body)).await?, Some(format!("{} is kept.", args.name)))
        }
        Command::Remove(args) => {
            let document = client.delete(&[KEYS[0], KEYS[1], &args.id]).await?;
            (document, Some(format!("{} is forgotten; CVMs that have it keep it.", args.id)))
        }
    };
    match words {
        _ if output.json => output.document(&document),
        Some(words) => output.say(&words),
        None => output
            .table(&table(read(&document)?), "You have no keys. Add one: cloister ssh-keys add NAME FILE"),
    }
    Ok(())
}

fn table(keys: Vec<Key>) -> Table {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("NAME", Align::Left),
        ("TYPE", Align::Left),
        ("FINGERPRINT", Align::Left),
        ("ADDED", Align::Left),
    ]);
    for key in keys {
        table.row([key.id, key.name, key.kind, key.fingerprint, minute(key.created_at)]);
    }
    table
}
