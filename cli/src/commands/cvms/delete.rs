//! `cloister cvms delete`.

use std::io::BufRead;

use serde_json::Value;

use crate::args::{CvmName, Waiting};
use crate::commands::Outcome;
use crate::commands::follow::{self, Goal};
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Arguments of `cvms delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
    #[command(flatten)]
    waiting: Waiting,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Deletes a CVM after a person agreed.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let (_, detail) = follow::detail(&client, &args.name.cvm).await?;
    let (id, name) = (detail.id.to_string(), detail.name);
    if !args.yes {
        agree(session, &name)?;
    }
    // By id from here on: another CVM may take the name while this one goes.
    client.delete(&["cvms", &id]).await?;
    if !args.waiting.no_wait {
        let mut progress = output.progress();
        follow::follow(&client, &id, Goal::Gone, args.waiting.timeout, &mut progress).await?;
        progress.done(&format!("{name} is deleted"));
    }
    if output.json {
        output.document(&Value::Null);
    }
    Ok(())
}

fn agree(session: &Session, name: &str) -> Result<(), Failure> {
    if !session.output.can_ask() {
        return Err(Failure::usage("deleting needs --yes where nobody can be asked"));
    }
    session.output.prompt(&format!("Delete {name} and its data for good? Type its name to agree:"));
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::local("cannot read the answer", error))?;
    if answer.trim() == name {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, format!("{name} was not deleted")))
}
