//! One file per subcommand.

pub(crate) mod accounts;
mod approval;
pub(crate) mod approve;
pub(crate) mod audit;
pub(crate) mod billing;
pub(crate) mod budget;
pub(crate) mod chain;
mod checkpoint;
pub(crate) mod commit;
pub(crate) mod completion;
pub(crate) mod cvms;
pub(crate) mod deploy;
pub(crate) mod env;
mod follow;
pub(crate) mod image;
pub(crate) mod instance_types;
pub(crate) mod kms;
pub(crate) mod login;
pub(crate) mod nodes;
pub(crate) mod operations;
pub(crate) mod os_images;
pub(crate) mod owners;
pub(crate) mod relay;
pub(crate) mod revisions;
pub(crate) mod rollouts;
pub(crate) mod serve;
pub(crate) mod ssh_keys;
pub(crate) mod tokens;
pub(crate) mod topics;
pub(crate) mod up;
pub(crate) mod update;
pub(crate) mod usage;
pub(crate) mod verify;
pub(crate) mod version;
pub(crate) mod webhooks;

use std::future::Future;

use rustix::fs::Mode;

use crate::args::Command;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::session::Session;

/// What every subcommand returns.
type Outcome = Result<(), Failure>;

/// Runs the subcommand and answers with the exit code.
pub(crate) fn run(command: Command, session: &Session) -> Exit {
    let outcome = match command {
        Command::Up(args) => up::run(args, session),
        Command::Serve(part) => serve::run(*part, session),
        Command::Env(args) => block_on(env::run(args, session)),
        Command::Login(args) => block_on(login::run(args, session)),
        Command::Logout(args) => block_on(login::logout(args, session)),
        Command::Deploy(args) => block_on(deploy::run(*args, session)),
        Command::Update(args) => block_on(update::run(*args, session)),
        Command::Diff(args) => block_on(update::diff(*args, session)),
        Command::Chain(command) => block_on(chain::run(*command, session)),
        Command::Commit(args) => block_on(commit::run(args, session)),
        Command::Cvms(command) => block_on(cvms::run(command, session)),
        Command::Verify(args) => block_on(verify::run(*args, session)),
        Command::Owners(command) => block_on(owners::run(command, session)),
        Command::Approvals(command) => block_on(approve::run(command, session)),
        Command::Approve(args) => block_on(approve::approve(*args, session)),
        Command::Operations(command) => block_on(operations::run(command, session)),
        Command::Revisions(command) => block_on(revisions::run(command, session)),
        Command::Rollouts(command) => block_on(rollouts::run(command, session)),
        Command::OsImages(command) => block_on(os_images::run(command, session)),
        Command::SshKeys(command) => block_on(ssh_keys::run(command, session)),
        Command::Webhooks(command) => block_on(webhooks::run(command, session)),
        Command::InstanceTypes(args) => block_on(instance_types::run(args, session)),
        Command::Usage(args) => block_on(usage::run(args, session)),
        Command::Billing(args) => block_on(billing::run(args, session)),
        Command::Budget(command) => block_on(budget::run(command, session)),
        Command::Tokens(command) => block_on(tokens::run(command, session)),
        Command::Audit(command) => block_on(audit::run(command, session)),
        Command::Accounts(command) => block_on(accounts::run(command, session)),
        Command::Nodes(command) => block_on(nodes::run(command, session)),
        Command::Image(command) => block_on(image::run(command, session)),
        Command::Kms(command) => block_on(kms::run(command, session)),
        Command::Completion(args) => show(&session.output, &completion::script(&args)),
        Command::Version(_) => show(&session.output, &version::text(session.output.json)),
        Command::ExitCodes => show(&session.output, &topics::exit_codes()),
        Command::Environment => show(&session.output, topics::ENVIRONMENT),
        Command::Relay(args) => return relay::run(&args),
    };
    outcome.err().map_or(Exit::Success, |failure| session.output.failure(&failure))
}

#[expect(clippy::unnecessary_wraps, reason = "the outcome of a command like any other")]
fn show(output: &Output, text: &str) -> Outcome {
    output.data(text);
    Ok(())
}

/// Runs a client command on one thread with the process's TLS provider in place.
fn block_on(command: impl Future<Output = Outcome>) -> Outcome {
    install_tls_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::local("cannot start the runtime", error))?.block_on(command)
}

/// Runs a part of a cloud on all cores with the process's TLS provider in place.
fn host(part: impl Future<Output = Outcome>) -> Outcome {
    // Databases, keys and disks are nobody else's, whatever the directory above them allows.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    install_tls_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::local("cannot start the runtime", error))?.block_on(part)
}

/// Makes ring the TLS provider of everything in this process; a second call changes nothing.
fn install_tls_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
