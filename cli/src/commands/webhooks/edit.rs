//! Making and changing webhooks, and their secrets.

use std::path::{Path, PathBuf};

use cloister_management_api::Webhook;
use cloister_webhooks::Secret;
use serde_json::{Map, Value, json};

use super::{One, Outcome, PATH, look};
use crate::api::{Client, read};
use crate::failure::Failure;
use crate::files;
use crate::output::Output;
use crate::secrets;

/// Longest file that may hold a secret.
const MAX_FILE: u64 = 4096;

/// Arguments of `webhooks create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister webhooks create https://hooks.example.org/cloister --events \
                        cvm.created,cvm.stopped\nKinds of events: cloister webhooks event-types")]
pub(crate) struct CreateArgs {
    /// Address that requests go to
    #[arg(value_name = "URL")]
    url: String,
    /// Kinds of events that it is told of, with commas
    #[arg(long, value_name = "KINDS", value_delimiter = ',', required = true)]
    events: Vec<String>,
    /// What you call it
    #[arg(long)]
    name: Option<String>,
    /// File with a secret of your own, 16 to 200 characters; `-` for stdin. Left out: one is made
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// Arguments of `webhooks update`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister webhooks update wh_… --enabled true")]
pub(crate) struct UpdateArgs {
    #[command(flatten)]
    one: One,
    /// Address that requests go to
    #[arg(long)]
    url: Option<String>,
    /// Kinds of events that it is told of, with commas; replaces those that it has
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    events: Option<Vec<String>>,
    /// What you call it; an empty name takes it away
    #[arg(long)]
    name: Option<String>,
    /// Whether it is told anything
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
}

pub(super) async fn create(args: &CreateArgs, client: &Client, output: &Output) -> Outcome {
    let secret = args.secret_file.as_deref().map(|file| own_secret(file, output)).transpose()?;
    let mut body = Map::new();
    body.insert("url".to_owned(), json!(args.url));
    body.insert("events".to_owned(), json!(args.events));
    body.extend(args.name.as_ref().map(|name| ("name".to_owned(), json!(name))));
    body.extend(secret.map(|secret| ("secret".to_owned(), json!(secret.expose()))));
    let document = client.post(&PATH, Some(&Value::Object(body))).await?;
    look::show(&document, output)?;
    let id = read::<Webhook>(&document)?.id;
    output.say(&format!("Keep the secret where the receiver reads it. Try it: cloister webhooks test {id}"));
    Ok(())
}

pub(super) async fn update(args: &UpdateArgs, client: &Client, output: &Output) -> Outcome {
    let mut body = Map::new();
    let members = [
        ("url", args.url.as_ref().map(|url| json!(url))),
        ("events", args.events.as_ref().map(|events| json!(events))),
        ("name", args.name.as_ref().map(|name| json!(name))),
        ("enabled", args.enabled.map(Value::from)),
    ];
    for (name, value) in members {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    }
    if body.is_empty() {
        return Err(Failure::usage("nothing was named that should change")
            .hint("for example: cloister webhooks update WEBHOOK --events cvm.created,cvm.deleted"));
    }
    let document = client.put_document(&args.one.path(), &Value::Object(body)).await?;
    look::show(&document, output)
}

/// Prints the secret alone, so that it can be piped to where it is kept.
pub(super) fn show_secret(document: &Value, output: &Output) -> Outcome {
    if output.json {
        output.document(document);
        return Ok(());
    }
    let secret = read::<Webhook>(document)?.secret;
    let secret = secret.ok_or_else(|| Failure::usage("the server did not answer with the secret"))?;
    output.line(&secret);
    Ok(())
}

/// Never an option: other users of a machine can read command lines.
fn own_secret(file: &Path, output: &Output) -> Result<Secret, Failure> {
    let text = if file == Path::new("-") {
        secrets::ask(output, "Secret:", "the secret")?
    } else {
        files::read_secret(file, MAX_FILE)?
    };
    Secret::parse(text.trim()).map_err(|error| Failure::usage("the secret cannot be used").caused_by(error))
}
