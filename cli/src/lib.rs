//! The tenant's and operator's command, `cloister`.
//!
//! Three rules hold for every subcommand: data goes to stdout and words to stderr; nothing is asked
//! where no person sits at a terminal; a failure says what to do next and ends with a code from
//! [`Exit`]. Only the `output` module prints.

mod api;
mod args;
mod commands;
mod credentials;
mod failure;
mod files;
mod logging;
mod output;
mod parts;
mod places;
mod secrets;
mod session;

pub use failure::Exit;

use clap::{CommandFactory, Parser};

/// The complete command surface, for help texts, completion and tests.
#[must_use]
pub fn command() -> clap::Command {
    args::Cli::command()
}

/// Runs the command of this process's arguments and answers with its exit code.
#[must_use]
pub fn run() -> Exit {
    let cli = args::Cli::parse();
    let session = session::Session::new(&cli.global);
    // Also when it panics.
    let _finish = logging::Finish;
    commands::run(cli.command, &session)
}
