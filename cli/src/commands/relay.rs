//! `cloister relay`: the other end of a guest's connection to its node.

use std::path::PathBuf;

use crate::failure::Exit;

/// Arguments of `relay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Unix socket to connect to
    socket: PathBuf,
}

/// Copies in both directions until both ends are closed. The guest reads stdout and stderr alike, so a
/// failure shows in the exit code only.
pub(super) fn run(args: &Args) -> Exit {
    cloister_node::relay(&args.socket).map_or(Exit::Failed, |()| Exit::Success)
}
