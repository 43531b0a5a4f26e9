//! `cloister accounts`: people who use the installation.

use cloister_management_api::{AdminUser, UserLink};
use serde_json::json;

use super::Outcome;
use super::cvms::minute;
use crate::api::read;
use crate::args::path_segment;
use crate::output::{Align, Table};
use crate::session::Session;

const USERS: [&str; 2] = ["admin", "users"];

/// The subcommands of `accounts`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the users
    List(ListArgs),
    /// Make a user, and print a link by which that one sets a password
    Create(CreateArgs),
    /// Print a link by which a user sets another password
    Reset(ResetArgs),
    /// Say which person of the OpenID provider a user is
    Link(LinkArgs),
}

/// Arguments of `accounts list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

/// Arguments of `accounts create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Whoever has the link sets the password: hand it over where nobody reads along.")]
pub(crate) struct CreateArgs {
    /// Login name
    username: String,
    /// Mail address
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    /// Workspace to become a member of, by its slug [default: a new one of the login name]
    #[arg(long, value_name = "SLUG")]
    workspace: Option<String>,
    /// Let the user administer the installation
    #[arg(long)]
    administrator: bool,
    /// What the OpenID provider calls the user (the claim `sub`), who logs in by it instead of setting a password
    #[arg(long, value_name = "SUBJECT")]
    openid_subject: Option<String>,
}

/// Arguments of `accounts reset`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The old password works until the link was used; then every browser is logged out.")]
pub(crate) struct ResetArgs {
    /// Login name
    #[arg(value_parser = path_segment())]
    username: String,
    /// Remove the second factor and the backup codes, too
    #[arg(long)]
    remove_second_factor: bool,
}

/// Arguments of `accounts link`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("whom").required(true),
    after_help = "Every browser of the user is logged out, and what applications may do in the user's name ends."
)]
pub(crate) struct LinkArgs {
    /// Login name
    #[arg(value_parser = path_segment())]
    username: String,
    /// What the OpenID provider calls the user (the claim `sub`); the page tells people who have no account
    #[arg(long, value_name = "SUBJECT", group = "whom")]
    openid_subject: Option<String>,
    /// Let the user log in by the provider no longer
    #[arg(long, group = "whom")]
    remove: bool,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let document = match command {
        Command::List(_) => {
            let document = client.get(&USERS, &[]).await?;
            if output.json {
                output.document(&document);
            } else {
                output.table(&table(read(&document)?), "There are no users.");
            }
            return Ok(());
        }
        Command::Create(args) => {
            let body = json!({
                "username": args.username, "email": args.email, "workspace": args.workspace,
                "administers": args.administrator, "openid_subject": args.openid_subject,
            });
            client.post(&USERS, Some(&body)).await?
        }
        Command::Reset(args) => {
            let body = json!({ "remove_second_factor": args.remove_second_factor });
            client.post(&[USERS[0], USERS[1], &args.username, "link"], Some(&body)).await?
        }
        Command::Link(args) => {
            let body = json!({ "openid_subject": args.openid_subject });
            let path = [USERS[0], USERS[1], &args.username, "openid"];
            let document = client.put_document(&path, &body).await?;
            if output.json {
                output.document(&document);
            } else {
                output.say(&logs_in(&read(&document)?));
            }
            return Ok(());
        }
    };
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let link: UserLink = read(&document)?;
    let (Some(url), Some(expires_at)) = (&link.url, link.expires_at) else {
        output.say(&logs_in(&link.user));
        return Ok(());
    };
    output.line(url);
    let until = minute(expires_at);
    output.say(&format!("{} sets a password there, once, until {until} UTC.", link.user.username));
    Ok(())
}

fn logs_in(user: &AdminUser) -> String {
    match &user.openid_subject {
        Some(subject) => format!("{} logs in by the OpenID provider, as {subject}.", user.username),
        None => format!("{} logs in by the OpenID provider no longer.", user.username),
    }
}

fn table(users: Vec<AdminUser>) -> Table {
    let mut table = Table::new(&[
        ("USER", Align::Left),
        ("ROLE", Align::Left),
        ("MAIL", Align::Left),
        ("PASSWORD", Align::Left),
        ("SECOND FACTOR", Align::Left),
        ("OPENID SUBJECT", Align::Left),
        ("WORKSPACES", Align::Left),
        ("CREATED", Align::Left),
    ]);
    for user in users {
        let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
        table.row([
            user.username,
            user.role,
            user.email,
            yes(user.has_password),
            yes(user.totp_enabled),
            user.openid_subject.unwrap_or_default(),
            user.workspaces.join(", "),
            minute(user.created_at),
        ]);
    }
    table
}
