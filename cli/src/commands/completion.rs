//! `cloister completion`: scripts that complete commands and options in a shell.

use clap_complete::Shell;

use crate::session::Session;

/// Arguments of `completion`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: cloister completion bash > ~/.local/share/bash-completion/completions/cloister"
)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(super) fn run(args: &Args, session: &Session) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "cloister", &mut script);
    session.output.bytes(&script);
}
