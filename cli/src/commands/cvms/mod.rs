//! `cloister cvms`: look at CVMs and change their state.

mod delete;
mod envs;
mod get;
mod list;
mod logs;
mod ports;
mod power;
mod rename;
mod replicate;
mod stats;

pub(crate) use get::summary;
pub(super) use list::{app_url, minute};

use super::Outcome;
use crate::session::Session;

/// The subcommands of `cvms`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the CVMs of the workspace
    List(list::Args),
    /// Show one CVM
    Get(get::Args),
    /// Print what the containers of a CVM, or the CVM itself, write
    Logs(logs::Args),
    /// Power a CVM on and wait until its application has started
    Start(power::Args),
    /// Power a CVM off at once, without telling its application
    Stop(power::Args),
    /// Let the application end, then power the CVM off
    Shutdown(power::Args),
    /// Shut a CVM down and start it again
    Restart(power::RestartArgs),
    /// Replace the sealed environment of a CVM, which restarts it
    Envs(envs::Args),
    /// Run the application of a CVM once more, on the same or another node
    Replicate(Box<replicate::Args>),
    /// Print what a CVM's machine is like and how busy it is
    Stats(stats::Args),
    /// List or replace the ports of the host that lead to a CVM
    Ports(ports::Args),
    /// Give a CVM another name
    Rename(rename::Args),
    /// Delete a CVM and its data
    Delete(delete::Args),
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    match command {
        Command::List(args) => list::run(args, session).await,
        Command::Get(args) => get::run(args, session).await,
        Command::Logs(args) => logs::run(args, session).await,
        Command::Start(args) => power::run(power::Change::Start, args, session).await,
        Command::Stop(args) => power::run(power::Change::Stop, args, session).await,
        Command::Shutdown(args) => power::run(power::Change::Shutdown, args, session).await,
        Command::Restart(args) => power::restart(args, session).await,
        Command::Envs(args) => envs::run(args, session).await,
        Command::Replicate(args) => replicate::run(*args, session).await,
        Command::Stats(args) => stats::run(args, session).await,
        Command::Ports(args) => ports::run(args, session).await,
        Command::Rename(args) => rename::run(args, session).await,
        Command::Delete(args) => delete::run(args, session).await,
    }
}
