//! `cloister version`.

use serde_json::json;

use crate::session::Session;

/// Arguments of `version`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Prints the version of this program.
pub(super) fn run(_args: &Args, session: &Session) {
    let version = env!("CARGO_PKG_VERSION");
    if session.output.json {
        session.output.document(&json!({ "version": version }));
    } else {
        session.output.line(&format!("cloister {version}"));
    }
}
