//! The command line: global options and the table of subcommands.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};

use crate::api::BaseUrl;
use crate::commands::{
    accounts, approve, audit, billing, budget, chain, commit, completion, cvms, deploy, env, image,
    instance_types, kms, login, nodes, operations, os_images, owners, relay, revisions, rollouts, serve,
    ssh_keys, tokens, topics, up, update, usage, verify, version, webhooks,
};

/// Confidential VMs from compose files, on your own machines.
#[derive(Debug, Parser)]
#[command(name = "cloister", version, max_term_width = 100, disable_help_subcommand = false)]
#[command(after_help = "Topics: cloister help exit-codes, cloister help environment")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Print the API's JSON documents instead of tables, and failures as JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Management API to talk to [default: `$CLOISTER_API_URL`, then `cloister login`, then `cloister up`]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api_url: Option<BaseUrl>,
    /// Directory of the cloud on this machine [default: `$CLOISTER_DATA_DIR` or
    /// ~/.local/share/cloister]
    #[arg(long, global = true, value_name = "DIR", env = "CLOISTER_DATA_DIR", hide_env = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Say more; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cloud on this machine, in the foreground
    Up(up::Args),
    /// Run one part of a cloud
    #[command(subcommand)]
    Serve(Box<serve::Part>),
    /// Print variables under which clients find the cloud, for `eval "$(cloister env)"`
    Env(env::Args),
    /// Keep the API key of a server, read from stdin
    Login(login::Args),
    /// Turn a compose file into a running CVM
    Deploy(Box<deploy::Args>),
    /// Change a CVM: its compose file, environment, image or size
    Update(Box<update::Args>),
    /// Show what an update would change, and the new hash, and change nothing
    Diff(Box<update::DiffArgs>),
    /// Carry out a change that waited until those who decide had allowed it
    Commit(commit::Args),
    /// Look at CVMs and change their state
    #[command(subcommand)]
    Cvms(cvms::Command),
    /// Say who has to sign what an application runs
    #[command(subcommand)]
    Owners(owners::Command),
    /// Look at what owners of an application have to sign
    #[command(subcommand)]
    Approvals(approve::Command),
    /// Sign, as an owner, what an application may run
    Approve(Box<approve::Args>),
    /// Judge from outside whether a CVM is what it should be
    Verify(Box<verify::Args>),
    /// Look at what happened to a CVM, or cancel what is happening
    #[command(subcommand)]
    Operations(operations::Command),
    /// Look at the configurations that an application had, and bring one back
    #[command(subcommand)]
    Revisions(revisions::Command),
    /// Change all CVMs of an application, one after the other
    #[command(subcommand)]
    Rollouts(rollouts::Command),
    /// Look at the guest images that CVMs run, and manage them
    #[command(subcommand)]
    OsImages(os_images::Command),
    /// Keep public SSH keys for applications
    #[command(subcommand)]
    SshKeys(ssh_keys::Command),
    /// Have events of the workspace told to programs of yours
    #[command(subcommand)]
    Webhooks(webhooks::Command),
    /// List the sizes that CVMs can have, and what they cost
    InstanceTypes(instance_types::Args),
    /// Show what an application used, and what that costs
    Usage(usage::Args),
    /// Show what the workspace has and pays
    Billing(billing::Args),
    /// Limit what an application may cost in a month
    #[command(subcommand)]
    Budget(budget::Command),
    /// Manage API keys of the workspace
    #[command(subcommand)]
    Tokens(tokens::Command),
    /// Look at who changed what, and check that the log of that is whole
    #[command(subcommand)]
    Audit(audit::Command),
    /// Manage the people who use the installation (for operators)
    #[command(subcommand)]
    Accounts(accounts::Command),
    /// Manage the machines that run CVMs (for operators)
    #[command(subcommand)]
    Nodes(nodes::Command),
    /// Bring container images to the nodes without a registry
    #[command(subcommand)]
    Image(image::Command),
    /// Look at and manage a key management service, and check its release log
    #[command(subcommand)]
    Kms(kms::Command),
    /// Look at and change the contracts that decide what applications may run
    #[command(subcommand)]
    Chain(Box<chain::Command>),
    /// Print a completion script for a shell
    Completion(completion::Args),
    /// Print the version
    Version(version::Args),
    /// What each exit code means
    #[command(hide = true, override_help = topics::exit_codes())]
    ExitCodes,
    /// Which environment variables are read
    #[command(hide = true, override_help = topics::ENVIRONMENT)]
    Environment,
    /// Copy stdin and stdout to a Unix socket (started by QEMU)
    #[command(hide = true)]
    Relay(relay::Args),
}

/// How a person names a CVM.
#[derive(Debug, Args)]
pub(crate) struct CvmName {
    /// Name, id, UUID, app id or instance id of the CVM
    #[arg(value_name = "CVM", value_parser = path_segment())]
    pub(crate) cvm: String,
}

/// Text that can stand in a URL path: not empty, and not a dot segment, which clients would fold away.
pub(crate) fn path_segment() -> impl clap::builder::TypedValueParser<Value = String> {
    use clap::builder::TypedValueParser;
    NonEmptyStringValueParser::new().try_map(|text| match text.as_str() {
        "." | ".." => Err("a dot names nothing"),
        long if long.len() > 512 => Err("longer than 512 bytes"),
        _ => Ok(text),
    })
}

/// Whether to wait until the change is done.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Waiting {
    /// Return as soon as the server accepted the change
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Give up waiting after this many seconds; the operation goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 600, conflicts_with = "no_wait",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}
