//! `cloister approve` and `cloister approvals`: owners sign what an application may run.
//!
//! Nobody signs what the server claims: the statement is read, compared with what was asked for, and the hash in it
//! computed anew from the document that is shown.

mod shown;
mod sign;

use std::io::BufRead as _;
use std::path::PathBuf;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_kms_api::approvals::{Action, ApprovalStatement};
use cloister_management_api::{AppApprovals, Approval};
use cloister_verifier::Clock;
use serde_json::json;

use super::Outcome;
use super::deploy::read_text;
use super::revisions::AppName;
use crate::api::{Client, read};
use crate::failure::{Exit, Failure};
use crate::output::{Align, Table};
use crate::session::Session;

/// How far ahead of this machine's clock a serial may be, in milliseconds.
const MAX_AHEAD_MS: i64 = 10 * 60 * 1000;

/// The subcommands of `approvals`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List what owners of an application have to sign, and who signed
    List(ListArgs),
}

/// Arguments of `approvals list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    app: AppName,
}

/// Arguments of `approve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister approve my-app --key ~/.ssh/id_ed25519")]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppName,
    /// Hash of the document [default: the only one that waits]
    #[arg(value_name = "HASH", conflicts_with = "owners")]
    hash: Option<ComposeHash>,
    /// Approve the owners that were proposed
    #[arg(long)]
    owners: bool,
    /// Take the document back: no approval until now allows it again
    #[arg(long, requires = "hash")]
    revoke: bool,
    /// Key to sign with: a private key, or the .pub file of one that an agent or a hardware key holds
    #[arg(long, value_name = "FILE", conflicts_with = "signature")]
    key: Option<PathBuf>,
    /// What `ssh-keygen -Y sign` wrote elsewhere. With neither, the statement is printed for that
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// The statement that was signed elsewhere; needed to hand in a revocation [default: the one that waits]
    #[arg(long, value_name = "FILE", requires = "signature")]
    statement: Option<PathBuf>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Runs the subcommand of `approvals`.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    const COLUMNS: [(&str, Align); 5] = [
        ("ACTION", Align::Left),
        ("HASH", Align::Left),
        ("SIGNED", Align::Left),
        ("WHY", Align::Left),
        ("CVMS", Align::Left),
    ];
    let Command::List(args) = command;
    let client = session.client()?;
    let app = args.app.id(&client).await?;
    let document = client.get(&["apps", &app, "approvals"], &[]).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&COLUMNS);
    for item in read::<AppApprovals>(&document)?.items {
        let cvms: Vec<&str> = item.cvms.iter().map(|cvm| cvm.name.as_str()).collect();
        table.row([
            item.action.replace('_', " "),
            item.compose_hash.map(|hash| hash.to_string()).unwrap_or_default(),
            count(&item),
            item.reason.replace('_', " "),
            cvms.join(", "),
        ]);
    }
    session.output.table(&table, "Nothing waits for owners of this application.");
    Ok(())
}

fn count(item: &Approval) -> String {
    format!("{} of {}", item.signed_by.len(), item.threshold)
}

/// Shows what is to be approved, has it signed and hands it in.
pub(super) async fn approve(args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let id = args.app.id(&client).await?;
    let app_id: AppId = id.parse().map_err(|error| Failure::usage("this is no app id").caused_by(error))?;
    let open: AppApprovals = read(&client.get(&["apps", &id, "approvals"], &[]).await?)?;
    let (item, statement) = args.matter(app_id, &open)?;
    let words = shown::words(&statement, item)?;
    let text = statement.to_string();
    if !output.json || !args.yes {
        output.say(words.trim_end());
    }
    let signature = match (&args.key, &args.signature) {
        (_, Some(path)) => read_text(path)?,
        (Some(key), None) => {
            args.agree(session)?;
            sign::with_key(key, &text)?
        }
        (None, None) => {
            output.data(&text);
            output.say(&sign::by_hand(&again(&id, &statement)));
            return Ok(());
        }
    };
    hand_in(&id, &text, &signature, &client, session).await
}

async fn hand_in(id: &str, text: &str, signature: &str, client: &Client, session: &Session) -> Outcome {
    let body = json!({ "statement": text, "signature": signature });
    let document = client.post(&["apps", id, "approvals"], Some(&body)).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let answer: Approval = read(&document)?;
    let rest = if answer.is_approved { "that is enough" } else { "the others have to sign the same" };
    session.output.say(&format!("Signed by {}: {rest}.", count(&answer)));
    if answer.is_approved && answer.action == "allow_compose_hash" {
        session
            .output
            .say("A change that waited for it can be committed now: cloister commit CVM --token TOKEN");
    }
    Ok(())
}

impl Args {
    /// What is to be signed, compared with what was asked for.
    fn matter<'a>(
        &self,
        app_id: AppId,
        open: &'a AppApprovals,
    ) -> Result<(Option<&'a Approval>, ApprovalStatement), Failure> {
        let item = self.item(open)?;
        let statement = match (&self.statement, item) {
            (Some(path), _) => parse(&read_text(path)?)?,
            (None, Some(item)) => parse(&item.statement)?,
            (None, None) => self.revocation(app_id, open.next_serial)?,
        };
        if i64::try_from(statement.serial).is_ok_and(|serial| serial > now_ms().saturating_add(MAX_AHEAD_MS))
        {
            return Err(ahead());
        }
        let is_meant = match statement.action {
            Action::AllowComposeHash(hash) => !self.owners && !self.revoke && self.is(hash, item),
            Action::RevokeComposeHash(hash) => self.revoke && self.is(hash, item),
            Action::SetOwners(_) => self.owners,
        };
        if statement.app_id == app_id && is_meant {
            return Ok((item, statement));
        }
        Err(Failure::new(Exit::Unverified, "the statement says something else than what you want to approve")
            .hint("nothing was signed; somebody, or the server, wants you to approve something else"))
    }

    fn is(&self, hash: ComposeHash, item: Option<&Approval>) -> bool {
        self.hash
            .map_or_else(|| item.and_then(|item| item.compose_hash) == Some(hash), |wanted| wanted == hash)
    }

    /// What waits.
    fn item<'a>(&self, open: &'a AppApprovals) -> Result<Option<&'a Approval>, Failure> {
        let action = match (self.owners, self.revoke) {
            (true, _) => "set_owners",
            (_, true) => "revoke_compose_hash",
            _ => "allow_compose_hash",
        };
        let of_kind = open.items.iter().filter(|item| item.action == action);
        let fits = |item: &&Approval| match self.hash {
            Some(hash) => item.compose_hash == Some(hash),
            None => !item.is_approved,
        };
        let found: Vec<&Approval> = of_kind.filter(fits).collect();
        match found.as_slice() {
            [item] => Ok(Some(item)),
            [] if self.revoke => Ok(None),
            [] => Err(Failure::new(Exit::NotFound, "nothing of that kind waits for the owners")
                .hint("see what does: cloister approvals list APP")),
            _ => Err(Failure::usage("several documents wait for the owners")
                .hint("name the hash of one of them; see cloister approvals list APP")),
        }
    }

    /// A revocation that nobody has signed yet.
    fn revocation(&self, app_id: AppId, next_serial: u64) -> Result<ApprovalStatement, Failure> {
        let hash = self.hash.ok_or_else(|| Failure::usage("name the hash of the document"))?;
        let now = u64::try_from(now_ms()).unwrap_or_default();
        Ok(ApprovalStatement {
            app_id,
            action: Action::RevokeComposeHash(hash),
            serial: now.max(next_serial),
        })
    }

    fn agree(&self, session: &Session) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !session.output.can_ask() {
            return Err(Failure::usage("signing needs --yes where nobody can be asked"));
        }
        session.output.prompt("Sign this? Type yes to agree:");
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        read.map_err(|error| Failure::local("cannot read the answer", error))?;
        if answer.trim() == "yes" { Ok(()) } else { Err(Failure::new(Exit::Failed, "nothing was signed")) }
    }
}

/// The arguments with which the signature is handed in.
fn again(app: &str, statement: &ApprovalStatement) -> String {
    match statement.action {
        Action::AllowComposeHash(hash) => format!("{app} {hash}"),
        Action::RevokeComposeHash(hash) => format!("{app} {hash} --revoke --statement statement.txt"),
        Action::SetOwners(_) => format!("{app} --owners"),
    }
}

fn now_ms() -> i64 {
    Clock::system().now().as_millisecond()
}

/// Signed ahead of its time, an approval would outlive every revocation until then, and a revocation every approval.
fn ahead() -> Failure {
    Failure::new(Exit::Unverified, "the serial of the statement is a time in the future").hint(
        "nothing was signed; compare this machine's clock with the server's, and do not sign if it is right",
    )
}

fn parse(text: &str) -> Result<ApprovalStatement, Failure> {
    text.parse().map_err(|error| {
        Failure::new(Exit::Unverified, "this is no statement that owners sign").caused_by(error)
    })
}
