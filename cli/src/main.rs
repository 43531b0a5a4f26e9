//! The `cloister` program.

use std::process::ExitCode;

/// Servers make and drop many small objects: with this allocator that costs them less than with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(cloister_cli::run() as u8)
}
