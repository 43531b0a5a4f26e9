//! `cloister image`: container images without a registry.

mod archive;

use std::path::{Path, PathBuf};

use cloister_management_api::PushedImage;
use serde_json::Value;

use super::Outcome;
use crate::api::{Client, Upload, read};
use crate::args::path_segment;
use crate::failure::{Exit, Failure};
use crate::output::{Align, Table};
use crate::session::Session;

/// The subcommands of `image`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Send an image archive (`docker save`, `podman save` or OCI layout) to every node
    Push(PushArgs),
    /// List the images that the workspace pushed
    List(ListArgs),
}

/// Arguments of `image push`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: docker save app:1 -o app.tar && cloister image push app.tar")]
pub(crate) struct PushArgs {
    /// The archive, gzip-compressed or not
    archive: PathBuf,
    /// Name under which compose files use the image, such as registry.example/team/app:1 [default: the
    /// archive's own]
    #[arg(value_parser = path_segment())]
    reference: Option<String>,
}

/// Arguments of `image list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    match command {
        Command::Push(args) => run_push(args, session).await,
        Command::List(args) => list(args, session).await,
    }
}

async fn run_push(args: PushArgs, session: &Session) -> Outcome {
    let client = session.client()?;
    let mut progress = session.output.progress();
    progress.phase(&format!("sending {}", args.archive.display()));
    let document = push(&client, &args.archive, args.reference.as_deref()).await?;
    progress.done(&format!("{} is on every node", read::<PushedImage>(&document)?.reference));
    if session.output.json {
        session.output.document(&document);
    }
    Ok(())
}

/// Sends an archive to every node, under the given name or its own.
pub(super) async fn push(client: &Client, archive: &Path, reference: Option<&str>) -> Result<Value, Failure> {
    let reference = match reference {
        Some(given) => given.to_owned(),
        None => archive::reference(archive)?,
    };
    let path: Vec<&str> = ["images"].into_iter().chain(reference.split('/')).collect();
    let document = client.put(&path, Upload::open(archive).await?).await?;
    let pushed: PushedImage = read(&document)?;
    if pushed.nodes.is_empty() {
        return Err(Failure::new(Exit::Conflict, "no node is online to take the image")
            .hint("an operator sees the nodes with: cloister nodes list"));
    }
    match pushed.nodes.iter().find_map(|node| Some((&node.name, node.error.as_ref()?))) {
        Some((node, error)) => {
            Err(Failure::new(Exit::Failed, format!("{node} did not take {reference}: {error}")))
        }
        None => Ok(document),
    }
}

async fn list(_args: ListArgs, session: &Session) -> Outcome {
    let document = session.client()?.get(&["images"], &[]).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("IMAGE", Align::Left),
        ("NODE", Align::Left),
        ("SIZE", Align::Right),
        ("DIGEST", Align::Left),
    ]);
    for image in read::<Vec<PushedImage>>(&document)? {
        for node in image.nodes {
            table.row([
                image.reference.clone(),
                node.name,
                node.size.map(megabytes).unwrap_or_default(),
                node.digest.or(node.error).unwrap_or_default(),
            ]);
        }
    }
    session.output.table(&table, "No images were pushed. Push one: cloister image push app.tar");
    Ok(())
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}
