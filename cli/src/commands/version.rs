//! `cloister version`.

use serde_json::json;

/// Arguments of `version`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// The version of this program, for people or programs.
pub(super) fn text(json: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if json { format!("{}\n", json!({ "version": version })) } else { format!("cloister {version}\n") }
}
