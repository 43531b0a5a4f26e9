//! The first program of ours in a CVM: prepares it, runs the compose file, reports to the node.
//!
//! One static binary with three lives. The kernel starts it as `/init` in the initial RAM disk
//! (`power_on`): it loads modules, mounts the root file system and moves there. In the real root it
//! stays process 1 (`supervisor`), which starts the *agent* (`agent`) as a child, reaps orphans and
//! powers off when the agent ends. All three come from the measured initial RAM disk, so that the root
//! file system holds nothing of ours but configuration.

mod agent;
mod application;
mod attestation;
mod boot;
mod console;
mod cut;
mod engine;
mod external;
mod failure;
mod guest_api;
mod health;
mod hidden;
mod keys;
mod machine;
mod output;
mod power_on;
mod progress;
mod stats;
mod status_port;
mod supervisor;

use std::process::ExitCode;

use tracing::error;

/// Runs the life that the process was started for, to its end. As the first process of a machine it does not return: the
/// machine is powered off.
#[must_use]
pub fn run() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_ansi(false)
        .with_target(false)
        .init();
    match std::env::args().nth(1).as_deref() {
        Some(supervisor::AGENT_ARGUMENT) => return agent::run(),
        Some(console::ARGUMENT) => return console::become_shell(),
        _ => {}
    }
    if !rustix::process::getpid().is_init() {
        error!("this program is the init of a Cloister guest and does nothing elsewhere");
        return ExitCode::FAILURE;
    }
    match power_on::enter_root() {
        Ok(()) => supervisor::run(),
        Err(error) => error!("cannot start the guest: {}", failure::chain(&error)),
    }
    supervisor::power_off()
}
