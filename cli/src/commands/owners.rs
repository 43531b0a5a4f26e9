//! `cloister owners`: who has to sign what an application runs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cloister_app_compose::AppId;
use cloister_kms_api::AppOwnersResponse;
use cloister_kms_api::approvals::{OwnerKey, Owners};
use cloister_kms_api::statements::{app_owners_digest, recover, verify_app_owners};
use cloister_management_api::AppOwners;
use cloister_verifier::Clock;
use serde_json::{Value, json};

use super::Outcome;
use super::deploy::{RootKey, check_root, read_text};
use super::revisions::AppName;
use crate::api::{Client, read};
use crate::failure::{Exit, Failure};
use crate::output::{Align, Table};
use crate::session::Session;

/// The service of an application without a contract, whatever it is called.
const OWN_KMS: &str = "phala";

/// The subcommands of `owners`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the owners of an application, as its KMS signs them
    Show(ShowArgs),
    /// Set the owners of an application; the present ones have to approve others
    Set(SetArgs),
}

/// Arguments of `owners show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    app: AppName,
    /// secp256k1 key of the KMS's root, 66 hex digits [default: the one that is remembered, or the first that is met]
    #[arg(long, value_name = "HEX")]
    kms_root: Option<RootKey>,
}

/// Arguments of `owners set`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister owners set my-app --key ada.pub --key bob.pub --threshold 2")]
pub(crate) struct SetArgs {
    #[command(flatten)]
    app: AppName,
    #[command(flatten)]
    wanted: Wanted,
}

/// Owners as a person names them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Wanted {
    /// Public SSH key of an owner, or several, one a line: ed25519, ECDSA P-256 or a hardware key
    #[arg(long = "key", value_name = "FILE", required = true)]
    keys: Vec<PathBuf>,
    /// How many of the owners have to sign a change
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=32))]
    threshold: u32,
}

impl Wanted {
    fn owners(&self) -> Result<Owners, Failure> {
        read_owners(&self.keys, self.threshold)
    }
}

/// Owners whose keys these files hold, one a line.
pub(super) fn read_owners(files: &[PathBuf], threshold: u32) -> Result<Owners, Failure> {
    let mut keys = Vec::new();
    for path in files {
        let text = read_text(path)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let key: OwnerKey = line.parse().map_err(|error| {
                Failure::usage(format!("{} holds no owner's key", path.display())).caused_by(error)
            })?;
            keys.push(key);
        }
    }
    Owners::new(threshold, keys).map_err(|error| Failure::usage("these can be no owners").caused_by(error))
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let client = session.client()?;
    match command {
        Command::Show(args) => show(&args, &client, session).await,
        Command::Set(args) => {
            let (owners, app) = (args.wanted.owners()?, args.app.id(&client).await?);
            let document = set(&app, &owners, &client, session).await?;
            if session.output.json {
                session.output.document(&document);
            }
            Ok(())
        }
    }
}

/// Sets the owners; the server's answer, which the KMS confirmed.
pub(super) async fn set(
    app: &str,
    owners: &Owners,
    client: &Client,
    session: &Session,
) -> Result<Value, Failure> {
    let body = json!({ "threshold": owners.threshold(), "keys": owners.keys() });
    let document = client.put_document(&["apps", app, "owners"], &body).await.map_err(|failure| {
        if failure.exit != Exit::AwaitsApproval {
            return failure;
        }
        failure.hint("then they are set; see who has signed: cloister approvals list APP")
    })?;
    let answer: AppOwners = read(&document)?;
    of_the_same(&answer, app)?;
    let is_confirmed = check(&answer, None, client, session).await?;
    if stated(&answer) != named(Some(owners)) {
        return Err(Failure::new(Exit::Unverified, "the server set other owners than those that you named")
            .hint("see who they are: cloister owners show APP; do not trust this server"));
    }
    if !session.output.json {
        table(&answer, session);
    }
    if !is_confirmed {
        return Err(Failure::new(
            Exit::Unverified,
            "nobody but the server says that these are the owners now",
        )
        .hint("ask again later, when the KMS answers: cloister owners show APP"));
    }
    if !session.output.json {
        say_what_follows(app, owners, session);
    }
    Ok(document)
}

fn of_the_same(answer: &AppOwners, app: &str) -> Result<(), Failure> {
    if answer.app_id.to_string() == app {
        return Ok(());
    }
    Err(Failure::new(Exit::Unverified, "the server answers about another application"))
}

/// How many have to sign, and the keys.
type Named = (u32, BTreeSet<String>);

/// As the server says.
fn stated(answer: &AppOwners) -> Named {
    (answer.threshold, answer.owners.iter().map(|owner| owner.key.clone()).collect())
}

fn named(owners: Option<&Owners>) -> Named {
    let keys = owners.into_iter().flat_map(Owners::keys).map(ToString::to_string);
    (owners.map_or(0, Owners::threshold), keys.collect())
}

fn say_what_follows(app: &str, owners: &Owners, session: &Session) {
    session.output.say(&format!(
        "From now on the KMS gives keys to no document that {} of these {} did not sign.",
        owners.threshold(),
        owners.keys().len()
    ));
    session.output.say(&format!("What runs now needs it too before it starts again: cloister approve {app}"));
}

async fn show(args: &ShowArgs, client: &Client, session: &Session) -> Outcome {
    let app = args.app.id(client).await?;
    let document = client.get(&["apps", &app, "owners"], &[]).await?;
    let answer: AppOwners = read(&document)?;
    of_the_same(&answer, &app)?;
    check(&answer, args.kms_root, client, session).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    table(&answer, session);
    Ok(())
}

fn table(answer: &AppOwners, session: &Session) {
    const COLUMNS: [(&str, Align); 3] =
        [("KEY", Align::Left), ("TYPE", Align::Left), ("MEMBERS", Align::Left)];
    let mut table = Table::new(&COLUMNS);
    for owner in &answer.owners {
        let kind = owner.key.split(' ').next().unwrap_or_default();
        table.row([owner.fingerprint.clone(), kind.to_owned(), owner.members.join(", ")]);
    }
    session
        .output
        .table(&table, "Nobody: whoever may deploy in the workspace decides what the application runs.");
    if !answer.owners.is_empty() {
        session.output.say(&format!("{} of {} have to sign.", answer.threshold, answer.owners.len()));
    }
}

/// Whether the KMS says the same, signed by the root that is trusted; not if it says nothing. Members' names are the
/// server's word alone.
async fn check(
    answer: &AppOwners,
    named: Option<RootKey>,
    client: &Client,
    session: &Session,
) -> Result<bool, Failure> {
    let Some(kms_statement) = &answer.kms_statement else {
        let why = answer.kms_error.as_deref().unwrap_or("no reason was given");
        session.output.say(&format!("Not verified: the KMS did not say who the owners are ({why})."));
        return Ok(false);
    };
    let unsigned = || Failure::new(Exit::Unverified, "the KMS's statement about the owners does not verify");
    let response: AppOwnersResponse = serde_json::to_value(kms_statement)
        .and_then(serde_json::from_value::<AppOwnersResponse>)
        .map_err(|error| unsigned().caused_by(error))?;
    let signer = recover(&app_owners_digest(&response), response.signature.as_ref())
        .map_err(|error| unsigned().caused_by(error))?;
    let now = u64::try_from(Clock::system().now().as_second()).unwrap_or_default();
    let app_id: AppId = answer.app_id;
    verify_app_owners(&app_id, &response, now, &signer).map_err(|error| unsigned().caused_by(error))?;
    check_root(RootKey::from(signer), app_id, named, false, OWN_KMS, client, session).await?;
    if stated(answer) != self::named(response.owners.as_ref()) {
        return Err(Failure::new(Exit::Unverified, "the server names other owners than the KMS")
            .hint("what counts is what the KMS says; ask the operator why they differ"));
    }
    Ok(true)
}

/// What owners of a refused change have to do, as hints.
pub(super) fn hints(app: &str, hash: &str, approval: &Value) -> Vec<String> {
    let signed = approval["signed_by"].as_array().map_or(0, Vec::len);
    let threshold = approval["threshold"].as_u64().unwrap_or_default();
    vec![
        format!("{threshold} owners have to sign it, {signed} did: see cloister owners show {app}"),
        format!("each of them runs: cloister approve {app} {hash} --key ~/.ssh/id_ed25519"),
    ]
}
