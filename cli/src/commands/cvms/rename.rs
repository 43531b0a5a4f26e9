//! `cloister cvms rename`.

use cloister_management_api::CvmName as NewName;
use serde_json::{Value, json};

use crate::args::CvmName;
use crate::commands::Outcome;
use crate::session::Session;

/// Arguments of `cvms rename`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
    /// New name, 5 to 63 letters, digits and hyphens
    new: NewName,
}

/// Gives a CVM another name; nothing is restarted.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (output, cvm) = (&session.output, args.name.cvm.as_str());
    let body = json!({ "name": args.new.as_str() });
    session.client()?.patch(&["cvms", cvm, "name"], &body).await?;
    if output.json {
        output.document(&Value::Null);
    } else {
        output.say(&format!(
            "{cvm} is called {} now; its guest calls itself so after its next start.",
            args.new
        ));
    }
    Ok(())
}
