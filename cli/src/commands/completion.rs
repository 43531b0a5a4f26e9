//! `cloister completion`: scripts that complete commands and options in a shell.

use clap_complete::Shell;

/// Arguments of `completion`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: cloister completion bash > ~/.local/share/bash-completion/completions/cloister"
)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// The script.
pub(super) fn script(args: &Args) -> String {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "cloister", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
