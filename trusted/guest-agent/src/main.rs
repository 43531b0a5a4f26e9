//! The guest agent's program; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    cloister_guest_agent::run()
}
