//! `cloister login` and `cloister logout`: a key for a server, and its end.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use cloister_management_api::v20260121::CurrentUser;
use cloister_management_api::{DeviceCode, KeyScope};
use serde_json::json;

use super::Outcome;
use super::tokens::Scope;
use crate::api::{Answer, BaseUrl, Client, Door, Pace, expired, read};
use crate::credentials::{ApiKey, Credentials};
use crate::failure::{Exit, Failure};
use crate::places;
use crate::secrets;
use crate::session::Session;

/// Longest wait, whatever the server says.
const LONGEST_WAIT: Duration = Duration::from_mins(30);
const MAX_HOST: usize = 60;

/// Arguments of `login`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples: cloister login --api-url https://cloud.example.org\n          \
                  cloister login --api-url https://cloud.example.org < key.txt")]
pub(crate) struct Args {
    /// Ask for an API key that you have, as where stdin is no terminal
    #[arg(long, conflicts_with_all = ["device", "scope"])]
    with_key: bool,
    /// Log in with a browser even where stdin is no terminal
    #[arg(long)]
    device: bool,
    /// What the key that you get may do at most [default: deploy]
    #[arg(long, value_enum)]
    scope: Option<Scope>,
}

/// Arguments of `logout`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A key that you had before, and gave to `cloister login`, is forgotten and goes on working."
)]
pub(crate) struct LogoutArgs {
    /// Forget the key without ending it, such as where the server is gone
    #[arg(long)]
    forget: bool,
}

/// Gets a key, tries it and keeps it.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let server = session.server()?.ok_or_else(which)?;
    let path = places::login_credentials()?;
    let with_browser = args.device || args.scope.is_some() || std::io::stdin().is_terminal();
    let key = if with_browser && !args.with_key {
        let scope = args.scope.map_or(KeyScope::Deploy, KeyScope::from);
        wait(session, server.clone(), scope).await?
    } else {
        ApiKey::parse(&secrets::ask(&session.output, "API key (not shown):", "the API key")?)?
    };
    let document = Client::new(server.clone(), key.clone())?.get(&["auth", "me"], &[]).await?;

    let mut credentials = Credentials::load(&path)?;
    let former = credentials.own_key(&server).filter(|former| **former != key).cloned();
    if with_browser && !args.with_key {
        credentials.remember_own(server.clone(), key);
    } else {
        credentials.remember(server.clone(), key);
    }
    credentials.store(&path)?;
    // Nobody else has it. If it cannot be ended now, it ends by itself.
    if let Some(former) = former
        && let Err(failure) = end(&server, former).await
    {
        session.output.say(&format!("The key from before still works: {}", failure.chain()));
    }

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

fn which() -> Failure {
    Failure::usage("which server?").hint("name it: cloister login --api-url https://cloud.example.org")
}

/// Waits until somebody lets this command line in (RFC 8628).
async fn wait(session: &Session, server: BaseUrl, scope: KeyScope) -> Result<ApiKey, Failure> {
    let door = Door::new(server)?;
    let code = door.knock(&own_name(), scope).await?;
    tell(session, &code);
    let ends = Instant::now() + Duration::from_secs(code.expires_in.into()).min(LONGEST_WAIT);
    let mut pace = Pace::of(code.interval);
    while Instant::now() + pace.pause() < ends {
        tokio::time::sleep(pace.pause()).await;
        let answer = door.ask(&code.device_code).await?;
        pace = pace.after(&answer);
        if let Answer::Key(token) = answer {
            return ApiKey::parse(&token.access_token);
        }
    }
    Err(expired())
}

/// What the person sees who decides, and what the key is called.
fn own_name() -> String {
    let host: String = rustix::system::uname().nodename().to_string_lossy().chars().take(MAX_HOST).collect();
    let host = host.replace(char::is_control, "");
    if host.is_empty() { "cloister".to_owned() } else { format!("cloister on {host}") }
}

/// Says where to go. Programs read it as a line of its own, before the one with the account.
fn tell(session: &Session, code: &DeviceCode) {
    let output = &session.output;
    if output.json {
        output.document(&json!({
            "user_code": code.user_code, "verification_uri": code.verification_uri,
            "verification_uri_complete": code.verification_uri_complete, "expires_in": code.expires_in,
        }));
        return;
    }
    output.say(&format!("Open in a browser: {}", code.verification_uri_complete));
    output.say(&format!("Let this device in if the page shows the code: {}", code.user_code));
    let minutes = code.expires_in.div_ceil(60);
    output.say(&format!("Waiting for {minutes} minutes at most. Ctrl-C gives up."));
}

/// Ends the key of a server and forgets it.
pub(super) async fn logout(args: LogoutArgs, session: &Session) -> Outcome {
    let path = places::login_credentials()?;
    let mut credentials = Credentials::load(&path)?;
    let server = match session.named_server()? {
        Some(server) => Some(server),
        None => credentials.current().cloned(),
    };
    let server = server.filter(|server| credentials.key(server).is_some()).ok_or_else(|| {
        Failure::new(Exit::NotFound, "you are not logged in there")
            .hint(format!("what is kept is in {}", path.display()))
    })?;
    let own = credentials.own_key(&server).filter(|_| !args.forget).cloned();
    let is_ended = own.is_some();
    if let Some(key) = own {
        end(&server, key).await.map_err(|failure| {
            failure.hint("to forget the key without ending it: cloister logout --forget")
        })?;
    }
    credentials.forget(&server);
    credentials.store(&path)?;

    let origin = server.origin();
    if session.output.json {
        session.output.document(&json!({ "server": origin, "key_ended": is_ended }));
    } else if is_ended {
        session.output.say(&format!("Logged out of {origin}; the key works no longer."));
    } else {
        session
            .output
            .say(&format!("Logged out of {origin}; the key is forgotten here, and goes on working."));
    }
    Ok(())
}

/// Ends a key. One that works no longer has ended.
async fn end(server: &BaseUrl, key: ApiKey) -> Outcome {
    match Client::new(server.clone(), key)?.delete(&["tokens", "self"]).await {
        Err(failure) if failure.exit != Exit::Unauthorised => Err(failure),
        _ => Ok(()),
    }
}
