//! `cloister cvms logs`.

use cloister_management_api::{Composition, Container};
use futures_util::future::try_join_all;
use reqwest::Response;
use serde_json::Value;
use url::Url;

use crate::api::{Client, read};
use crate::args::CvmName;
use crate::commands::{Outcome, follow};
use crate::failure::{Exit, Failure};
use crate::output::{Output, printable};
use crate::session::Session;

/// Longest line that is held back to be printed as a whole, in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Arguments of `cvms logs`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
    /// Only this container, by name or by the beginning of its id
    #[arg(long, value_name = "NAME", conflicts_with = "serial")]
    container: Option<String>,
    /// The serial console of the machine instead: boot, scripts, compose
    #[arg(long)]
    serial: bool,
    /// Go on printing what is written from now on
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tail: Option<u32>,
    /// Only what is newer: an RFC 3339 time, or a duration such as 42m
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what is older
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Put the time before each line
    #[arg(long)]
    timestamps: bool,
    /// Keep colours and other terminal sequences; only for applications that you trust
    #[arg(long)]
    ansi: bool,
}

/// Prints logs until they end.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (client, cvm) = (session.client()?, args.name.cvm.as_str());
    let sources =
        if args.serial { serial(&client, cvm).await? } else { containers(&client, cvm, &args).await? };
    let clean = session.output.data_is_on_terminal() && !args.ansi;
    let prefixed = sources.len() > 1;
    try_join_all(sources.into_iter().map(|(name, url)| {
        let (client, url) = (&client, with_options(url, &args));
        let prefix = if prefixed { format!("{name} | ") } else { String::new() };
        async move { stream(client.presigned(url).await?, &session.output, &prefix, clean).await }
    }))
    .await?;
    Ok(())
}

type Source = (String, Url);

async fn serial(client: &Client, cvm: &str) -> Result<Vec<Source>, Failure> {
    let (_, detail) = follow::detail(client, cvm).await?;
    let url = detail
        .logs
        .serial
        .ok_or_else(|| Failure::new(Exit::NotFound, format!("{cvm} has no serial log yet")))?;
    Ok(vec![("serial".to_owned(), log_url(&url)?)])
}

async fn containers(client: &Client, cvm: &str, args: &Args) -> Result<Vec<Source>, Failure> {
    let document: Value = client.get(&["cvms", cvm, "composition"], &[]).await?;
    let composition: Composition = read(&document)?;
    let all = composition.containers.unwrap_or_default();
    if !composition.is_online || all.is_empty() {
        let reason = composition.error.unwrap_or_else(|| "it runs no containers".to_owned());
        return Err(Failure::new(Exit::NotFound, format!("{cvm} has no container logs: {reason}"))
            .hint(format!("the machine's own log: cloister cvms logs {cvm} --serial")));
    }
    let names: Vec<&str> = all.iter().map(name).collect();
    let wanted =
        |container: &&Container| args.container.as_ref().is_none_or(|text| is_called(container, text));
    let chosen: Vec<&Container> = all.iter().filter(wanted).collect();
    if chosen.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("{cvm} has no such container"))
            .hint(format!("it has: {}", names.join(", "))));
    }
    let source = |container: &Container| {
        let none = || Failure::new(Exit::NotFound, format!("{} has no log", name(container)));
        let url = log_url(container.log_endpoint.as_deref().ok_or_else(none)?)?;
        Ok((name(container).to_owned(), url))
    };
    chosen.into_iter().map(source).collect()
}

/// A container's name without the slash that engines put before it.
fn name(container: &Container) -> &str {
    container.names.first().map_or(container.id.as_str(), |name| name.trim_start_matches('/'))
}

/// Whether a person means this container: by name or by the beginning of its id.
fn is_called(container: &Container, text: &str) -> bool {
    let text = text.trim_start_matches('/');
    container.names.iter().any(|name| name.trim_start_matches('/') == text)
        || (text.len() >= 4 && container.id.starts_with(text))
}

fn log_url(text: &str) -> Result<Url, Failure> {
    let wrong = |error| Failure::local("the server named a log that is no URL", error);
    let url = Url::parse(text).map_err(wrong)?;
    let web = matches!(url.scheme(), "http" | "https");
    web.then_some(url)
        .ok_or_else(|| Failure::new(Exit::Failed, "the server named a log that is no web address"))
}

fn with_options(mut url: Url, args: &Args) -> Url {
    let tail = args.tail.map(|lines| lines.to_string());
    let values =
        [("tail", tail.as_deref()), ("since", args.since.as_deref()), ("until", args.until.as_deref())];
    let flags = [
        ("text", true),
        ("bare", true),
        ("follow", args.follow),
        ("timestamps", args.timestamps),
        ("ansi", args.ansi),
    ];
    {
        let mut query = url.query_pairs_mut();
        for (name, value) in values.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            query.append_pair(name, value);
        }
        for (name, _) in flags.into_iter().filter(|(_, given)| *given) {
            query.append_key_only(name);
        }
    }
    url
}

/// Prints line by line, so that several streams do not mix within a line.
async fn stream(mut answer: Response, output: &Output, prefix: &str, clean: bool) -> Result<(), Failure> {
    let mut pending: Vec<u8> = Vec::new();
    let broken = |error: reqwest::Error| {
        Failure::new(Exit::Unreachable, "the log broke off").caused_by(error.without_url())
    };
    while let Some(chunk) = answer.chunk().await.map_err(broken)? {
        pending.extend_from_slice(&chunk);
        let end = pending.iter().rposition(|byte| *byte == b'\n').map(|position| position + 1);
        let end = end.or((pending.len() > MAX_LINE_BYTES).then_some(pending.len()));
        if let Some(end) = end {
            let rest = pending.split_off(end);
            print(&pending, output, prefix, clean);
            pending = rest;
        }
    }
    print(&pending, output, prefix, clean);
    Ok(())
}

fn print(bytes: &[u8], output: &Output, prefix: &str, clean: bool) {
    if prefix.is_empty() && !clean {
        output.bytes(bytes);
        return;
    }
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    for line in text.lines() {
        let line = if clean { printable(line) } else { line.to_owned() };
        output.data(&format!("{prefix}{line}\n"));
    }
}
