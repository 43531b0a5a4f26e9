//! `cloister os-images`: the systems that CVMs run.

use std::fs::File;
use std::path::{Path, PathBuf};

use cloister_management_api::{OsImage, Page};
use reqwest::Method;
use serde_json::Value;

use super::Outcome;
use crate::api::{Client, Upload, read};
use crate::args::{CvmName, path_segment};
use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::session::Session;

/// Where the catalogue is managed.
const CATALOGUE: [&str; 2] = ["admin", "os-images"];

/// The subcommands of `os-images`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the guest images, newest first
    List(ListArgs),
    /// List the guest images that one CVM can be changed to
    For(ForArgs),
    /// Add a guest image to the catalogue, from which the nodes fetch it (for operators)
    Add(AddArgs),
    /// Take a guest image from the catalogue; CVMs that have it keep it (for operators)
    Retire(RetireArgs),
}

/// Arguments of `os-images list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

/// Arguments of `os-images for`.
#[derive(Debug, clap::Args)]
pub(crate) struct ForArgs {
    #[command(flatten)]
    name: CvmName,
}

/// Arguments of `os-images add`.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Directory of the image, as `make image` leaves it
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Arguments of `os-images retire`.
#[derive(Debug, clap::Args)]
pub(crate) struct RetireArgs {
    /// Hash of the image, 64 hex digits
    #[arg(value_name = "HASH", value_parser = path_segment())]
    hash: String,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let client = session.client()?;
    match command {
        Command::List(_) => list(&client, session).await,
        Command::For(args) => for_cvm(&client, &args, session).await,
        Command::Add(args) => add(&client, &args.directory, session).await,
        Command::Retire(args) => {
            let document = client.delete(&[CATALOGUE[0], CATALOGUE[1], &args.hash]).await?;
            if session.output.json {
                session.output.document(&document);
            } else {
                session.output.say("No new CVM gets the image; those that have it keep it.");
            }
            Ok(())
        }
    }
}

async fn list(client: &Client, session: &Session) -> Outcome {
    let document = client.get(&["os-images"], &[("page_size", "100")]).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("VERSION", Align::Left),
        ("KIND", Align::Left),
        ("HASH", Align::Left),
    ]);
    for image in read::<Page<OsImage>>(&document)?.items {
        let hash = image.os_image_hash.map(|hash| hash.to_string()).unwrap_or_default();
        table.row([image.name, image.version, kind(image.is_dev).to_owned(), hash]);
    }
    session.output.table(&table, "There are no guest images. Add one: cloister os-images add DIR");
    Ok(())
}

const fn kind(is_dev: bool) -> &'static str {
    if is_dev { "development" } else { "production" }
}

async fn for_cvm(client: &Client, args: &ForArgs, session: &Session) -> Outcome {
    let document = client.get(&["cvms", &args.name.cvm, "available-os-images"], &[]).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("KIND", Align::Left),
        ("CURRENT", Align::Left),
        ("HASH", Align::Left),
    ]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for version in document.as_array().into_iter().flatten() {
        for (member, is_dev) in [("prod", false), ("dev", true)] {
            let Some(image) = version.get(member).filter(|image| !image.is_null()) else { continue };
            let current = if image["is_current"] == true { "yes" } else { "" };
            table.row([
                text(&image["name"]),
                kind(is_dev).to_owned(),
                current.to_owned(),
                text(&image["os_image_hash"]),
            ]);
        }
    }
    session.output.table(&table, "There is no other guest image for this CVM on its node.");
    Ok(())
}

/// Sends the files of an image as one archive.
async fn add(client: &Client, directory: &Path, session: &Session) -> Outcome {
    let mut progress = session.output.progress();
    progress.phase(&format!("packing {}", directory.display()));
    let archive = tempfile::NamedTempFile::new()
        .map_err(|error| Failure::local("cannot make a temporary file", error))?;
    pack(directory, archive.as_file()).map_err(|error| {
        Failure::usage(format!("{} is no guest image", directory.display())).caused_by(error)
    })?;
    progress.phase("sending the image");
    let upload = Upload::open(archive.path()).await?;
    let document = client.upload(Method::POST, &CATALOGUE, upload).await?;
    let name = document.get("name").and_then(Value::as_str).unwrap_or("the image");
    progress.done(&format!("{name} is in the catalogue; the nodes fetch it"));
    if session.output.json {
        session.output.document(&document);
    }
    Ok(())
}

/// The regular files of a directory, in the order of their names, as a tar archive.
fn pack(directory: &Path, archive: &File) -> std::io::Result<()> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.file_name());
        }
    }
    files.sort();
    let mut builder = tar::Builder::new(archive);
    builder.mode(tar::HeaderMode::Deterministic);
    for name in files {
        builder.append_path_with_name(directory.join(&name), &name)?;
    }
    builder.finish()
}
