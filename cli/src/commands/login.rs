//! `cloister login`: keep the key of a server.

use cloister_management_api::v20260121::CurrentUser;

use super::Outcome;
use crate::api::{Client, read};
use crate::credentials::{ApiKey, Credentials};
use crate::failure::Failure;
use crate::places;
use crate::secrets;
use crate::session::Session;

/// Arguments of `login`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister login --api-url https://cloud.example.org < key.txt")]
pub(crate) struct Args {}

/// Reads the key, tries it and keeps it.
pub(super) async fn run(_args: Args, session: &Session) -> Outcome {
    let server = session.named_server()?.ok_or_else(|| {
        Failure::usage("which server?").hint("name it: cloister login --api-url https://cloud.example.org")
    })?;
    let key = ApiKey::parse(&secrets::ask(&session.output, "API key (not shown):", "the API key")?)?;
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
