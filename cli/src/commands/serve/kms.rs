//! `cloister serve kms`.

use std::net::SocketAddr;
use std::path::PathBuf;

use cloister_kms::{Authorization, Config, Kms};
use url::Url;

use super::Logging;
use super::parent::{Bond, ORPHAN_GRACE};
use crate::commands::Outcome;
use crate::commands::kms::announce;
use crate::failure::Failure;
use crate::parts::{ChainArgs, Interrupts, kms};
use crate::session::Session;

/// Arguments of `serve kms`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "First start: POST http://ADDRESS/prpc/Onboard.Bootstrap {\"domain\": NAME}, then GET http://ADDRESS/finish"
)]
pub(crate) struct Args {
    /// Onboarding at first, then the release of keys (TLS, both sides with evidence)
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:12001")]
    listen: SocketAddr,
    /// Directory and administration (TLS, callers anonymous)
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:12002")]
    directory_listen: SocketAddr,
    /// Unix socket of the machine's guest agent, which gives evidence and the key that seals the state
    #[arg(long, value_name = "PATH", default_value = "/var/run/cloister.sock")]
    agent_socket: PathBuf,
    /// File with 32 raw bytes that seal the state, where the guest agent has no sealing key
    #[arg(long, value_name = "FILE")]
    sealing_key_file: Option<PathBuf>,
    /// File with the administrator's token, one line; without it there is no administration
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Service that decides who gets keys (public webhook: POST URL/bootAuth/app) instead of the built-in
    /// rules
    #[arg(long, value_name = "URL", conflicts_with = "kms_contract")]
    auth_webhook: Option<Url>,
    #[command(flatten)]
    chain: ChainArgs,
    /// Rules with which a new KMS begins, a policy document in JSON
    #[arg(long, value_name = "FILE")]
    initial_rules: Option<PathBuf>,
    /// Development root to accept beside the vendors' roots, PEM. Nothing protects what it signs
    #[arg(long, value_name = "FILE", env = "CLOISTER_DEVELOPMENT_ROOT", hide_env = true)]
    development_root: Option<PathBuf>,
    /// Release keys to machines with TEE hardware only
    #[arg(long, env = "CLOISTER_PRODUCTION", hide_env = true)]
    production: bool,
    /// Caching service (PCCS) for collateral: the development vendor's with --development-root
    /// [default: Intel's own service]
    #[arg(long, value_name = "URL", env = "CLOISTER_PCCS_URL", hide_env = true)]
    pccs_url: Option<Url>,
    #[command(flatten)]
    bond: Bond,
    #[command(flatten)]
    pub(super) logging: Logging,
}

/// Serves until it is told to stop, or its parent has gone.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let mut interrupts = Interrupts::install()?;
    let data_dir = session.data_dir()?.join(kms::DIRECTORY);
    let mut parent = args.bond.parent();
    let start = async {
        Kms::start(args.config(data_dir.clone())?)
            .await
            .map_err(|error| Failure::local("the key management service did not start", error))
    };
    let kms = tokio::select! {
        started = start => started?,
        () = interrupts.next() => return Ok(()),
        () = parent.gone() => return Ok(()),
    };
    announce(&data_dir, kms.address(), kms.directory_address())?;
    tracing::info!(address = %kms.address(), directory = %kms.directory_address(), "the KMS is up");
    let is_orphan = tokio::select! {
        () = interrupts.next() => false,
        () = parent.gone() => true,
    };
    let impatient = async {
        if is_orphan {
            tokio::time::sleep(ORPHAN_GRACE).await;
        } else {
            interrupts.again().await;
        }
    };
    tokio::select! {
        () = kms.stop() => {}
        () = impatient => {}
    }
    Ok(())
}

impl Args {
    fn config(self, data_dir: PathBuf) -> Result<Config, Failure> {
        let contract = self.chain.contract(self.production)?;
        let mut config = Config::new(data_dir, self.listen, self.directory_listen);
        config.agent_socket = self.agent_socket;
        config.sealing_key_file = self.sealing_key_file;
        config.admin_token_file = self.admin_token_file;
        config.authorization = match (contract, self.auth_webhook) {
            (Some((chain, kms_contract)), _) => Authorization::Chain { chain, kms_contract },
            (None, Some(url)) => Authorization::Webhook(url),
            (None, None) => Authorization::BuiltIn,
        };
        config.initial_rules = self.initial_rules;
        config.development_root = self.development_root;
        config.production = self.production;
        config.pccs_url = self.pccs_url;
        Ok(config)
    }
}
