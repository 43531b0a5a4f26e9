//! `cloister login`: keep the key of a server.

use std::io::{BufRead, IsTerminal, Read};

use cloister_management_api::v20260121::CurrentUser;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::Outcome;
use crate::api::{Client, read};
use crate::credentials::{ApiKey, Credentials};
use crate::failure::{Exit, Failure};
use crate::places;
use crate::session::Session;

const MAX_INPUT_BYTES: u64 = 4096;

/// Arguments of `login`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister login --api-url https://cloud.example.org < key.txt")]
pub(crate) struct Args {}

/// Reads the key, tries it and keeps it.
pub(super) async fn run(_args: Args, session: &Session) -> Outcome {
    let server = session.named_server()?.ok_or_else(|| {
        Failure::usage("which server?").hint("name it: cloister login --api-url https://cloud.example.org")
    })?;
    let key = ApiKey::parse(&read_key(session)?)?;
    let document = Client::new(server.clone(), key.clone())?.get(&["auth", "me"], &[]).await?;

    let path = places::login_credentials()?;
    let mut credentials = Credentials::load(&path)?;
    credentials.remember(server.clone(), key);
    credentials.store(&path)?;

    if session.output.json {
        session.output.document(&document);
    } else {
        let user = read::<CurrentUser>(&document)?.user.username;
        session.output.say(&format!(
            "Logged in to {} as {user}; the key is kept in {}.",
            server.origin(),
            path.display()
        ));
        session.output.say("Try: cloister cvms list");
    }
    Ok(())
}

fn read_key(session: &Session) -> Result<String, Failure> {
    let failed = |error| Failure::local("cannot read the API key", error);
    let stdin = std::io::stdin();
    let mut text = String::new();
    if !stdin.is_terminal() {
        stdin.lock().take(MAX_INPUT_BYTES).read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    session.output.prompt("API key (not shown):");
    let echoing = tcgetattr(&stdin).map_err(|error| failed(error.into()))?;
    let mut silent = echoing.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(|error| failed(error.into()))?;
    let read = stdin.lock().take(MAX_INPUT_BYTES).read_line(&mut text);
    tcsetattr(&stdin, OptionalActions::Now, &echoing).map_err(|error| failed(error.into()))?;
    session.output.say("");
    match read.map_err(failed)? {
        0 => Err(Failure::new(Exit::Usage, "no API key was given")),
        _ => Ok(text),
    }
}
