//! `cloister webhooks`: telling programs what happens in the workspace.

mod edit;
mod listen;
mod look;
mod send;

use cloister_verifier::Clock;
use jiff::Timestamp;
use serde_json::Value;

use super::Outcome;
use crate::args::path_segment;
use crate::output::Output;
use crate::session::Session;

const PATH: [&str; 2] = ["workspace", "webhooks"];

/// The subcommands of `webhooks`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the webhooks of the workspace
    List(look::ListArgs),
    /// Have events told to an address, and print the secret that requests are signed with
    Create(edit::CreateArgs),
    /// Show a webhook
    Show(One),
    /// Change a webhook; what is not named stays
    Update(edit::UpdateArgs),
    /// Delete a webhook; its deliveries end
    Delete(One),
    /// Print the secret of a webhook
    RevealSecret(One),
    /// Give a webhook another secret; for 24 hours requests are signed with both
    RotateSecret(One),
    /// Send a webhook an event with sample data, and say what it answered
    Test(One),
    /// Show how many deliveries there were, how many succeeded, and how long they took
    Stats(One),
    /// List what was sent to a webhook, newest first
    Deliveries(look::DeliveriesArgs),
    /// List every attempt of a delivery
    Attempts(look::AttemptsArgs),
    /// Send an event to a webhook again
    Resend(send::ResendArgs),
    /// Send what happened in a time to a webhook again
    Replay(send::ReplayArgs),
    /// List the kinds of events
    EventTypes(look::EventTypesArgs),
    /// Forward events to a program on this machine while it is written
    Listen(listen::Args),
}

/// Arguments that name one webhook.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// Id of the webhook, see `cloister webhooks list`
    #[arg(value_name = "WEBHOOK", value_parser = path_segment())]
    webhook: String,
}

impl One {
    fn path(&self) -> [&str; 3] {
        [PATH[0], PATH[1], &self.webhook]
    }

    fn below<'a>(&'a self, last: &'a str) -> [&'a str; 4] {
        [PATH[0], PATH[1], &self.webhook, last]
    }
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    match command {
        Command::List(_) => look::list(&client, output).await,
        Command::Create(args) => edit::create(&args, &client, output).await,
        Command::Show(one) => {
            let document = client.get(&one.path(), &[]).await?;
            look::show(&document, output)
        }
        Command::Update(args) => edit::update(&args, &client, output).await,
        Command::Delete(one) => {
            let document = client.delete(&one.path()).await?;
            told(output, &document, &format!("{} is deleted.", one.webhook));
            Ok(())
        }
        Command::RevealSecret(one) => {
            let document = client.post(&one.below("reveal-secret"), None).await?;
            edit::show_secret(&document, output)
        }
        Command::RotateSecret(one) => {
            let document = client.post(&one.below("rotate-secret"), None).await?;
            edit::show_secret(&document, output)?;
            output.say("For 24 hours requests are signed with the secret before, too: give the new one to the receiver.");
            Ok(())
        }
        Command::Test(one) => send::test(&one, &client, output).await,
        Command::Stats(one) => look::stats(&one, &client, output).await,
        Command::Deliveries(args) => look::deliveries(&args, &client, output).await,
        Command::Attempts(args) => look::attempts(&args, &client, output).await,
        Command::Resend(args) => send::resend(&args, &client, output).await,
        Command::Replay(args) => send::replay(&args, &client, output).await,
        Command::EventTypes(_) => look::event_types(&client, output).await,
        Command::Listen(args) => listen::run(args, &client, output).await,
    }
}

/// A document for programs, or words for people.
fn told(output: &Output, document: &Value, words: &str) {
    if output.json {
        output.document(document);
    } else {
        output.say(words);
    }
}

fn now() -> Timestamp {
    Clock::system().now()
}
