//! The `cloister` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cloister_cli::run() as u8)
}
