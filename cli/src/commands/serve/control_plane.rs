//! `cloister serve control-plane`.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use cloister_control_plane::inference::InferenceConfig;
use cloister_control_plane::proof_of_cloud::{ListSigner, ListSource, ProofOfCloudConfig};
use cloister_control_plane::{Config, DEFAULT_REQUESTS_PER_MINUTE};
use cloister_management_api::ApiVersion;
use ipnet::IpNet;
use jiff::civil::Date;
use url::Url;

use super::{Logging, chain_list, kms_list, oauth_clients, openid_provider};
use crate::commands::Outcome;
use crate::parts::{Home, Interrupts, control_plane, prices};
use crate::session::Session;

/// Variable with the `postgres:` URL; it holds a password, so there is no option for it.
const DATABASE_VARIABLE: &str = "CLOISTER_DATABASE_URL";

/// Arguments of `serve control-plane`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The database is SQLite in the data directory, or PostgreSQL at $CLOISTER_DATABASE_URL."
)]
pub(crate) struct Args {
    /// Management API
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8700")]
    api_listen: SocketAddr,
    /// Listener for nodes (mutual TLS)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8701")]
    fleet_listen: SocketAddr,
    /// Host name or address under which nodes reach the listener for nodes; may be repeated
    #[arg(long, value_name = "NAME")]
    fleet_name: Vec<String>,
    /// Base URL of the API as clients see it, when a proxy stands before it
    #[arg(long, value_name = "URL")]
    public_url: Option<Url>,
    /// Signed list of registered platforms, a file or an https URL; its signature is beside it (.minisig)
    #[arg(long, value_name = "PATH|URL", requires = "platform_list_key")]
    platform_list: Option<ListSource>,
    /// minisign public key of whoever signs the list of registered platforms
    #[arg(long, value_name = "KEY", requires = "platform_list")]
    platform_list_key: Option<ListSigner>,
    /// Trust hardware only: mint no development root, turn nodes without TEE hardware away
    #[arg(long, env = "CLOISTER_PRODUCTION", hide_env = true)]
    production: bool,
    /// Caching service (PCCS) for the collateral of Intel's platforms [default: Intel's own service]
    #[arg(long, value_name = "URL", env = "CLOISTER_PCCS_URL", hide_env = true)]
    pccs_url: Option<Url>,
    /// Key management services that CVMs can have their keys from, a JSON list of objects with `slug`,
    /// `guest_url`, `directory_url`, `ca_file`, `admin_token_file` and, where a contract decides, `contract` with its
    /// `chain_id` and `address`
    #[arg(long, value_name = "FILE")]
    kms_list: Option<PathBuf>,
    /// Chains of those contracts, a JSON list of objects with `chain_id`, `name` and `endpoints`. A file for its owner
    /// only, because providers put API keys into the addresses of endpoints
    #[arg(long, value_name = "FILE")]
    chains: Option<PathBuf>,
    /// Sizes that CVMs can have and what things cost, a JSON object; without it nothing costs anything
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Network that webhooks may lead to although it is not public, such as 10.1.0.0/16; may be repeated. Whoever may
    /// add a webhook can then send requests to every machine in it
    #[arg(long, value_name = "CIDR")]
    webhook_allow_network: Vec<IpNet>,
    /// Let webhooks in those networks do without TLS
    #[arg(long, requires = "webhook_allow_network")]
    webhook_allow_http: bool,
    /// Requests that each API key may make in a minute; 0 is no limit
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_REQUESTS_PER_MINUTE)]
    requests_per_minute: u32,
    /// When a dated version of the API ends, such as 2025-10-28=2027-03-31; may be repeated. Answers in that version say so
    /// (`Sunset`), and nothing else happens then
    #[arg(long, value_name = "VERSION=DATE", value_parser = sunset)]
    sunset: Vec<(ApiVersion, Date)>,
    /// File with the token that inference gateways present; without it they are not served
    #[arg(long, value_name = "FILE")]
    inference_token_file: Option<PathBuf>,
    /// Requests that each API key may begin at inference gateways in a minute [default: no limit]
    #[arg(long, value_name = "COUNT", requires = "inference_token_file")]
    inference_requests_per_minute: Option<NonZeroU32>,
    /// Applications that people can let in with OAuth 2.0, a JSON list of objects with `id`, `name` and `redirect_uris`
    #[arg(long, value_name = "FILE")]
    oauth_clients: Option<PathBuf>,
    /// The OpenID provider that people can log in by, a JSON object with `issuer`, `client_id`, `client_secret_file` (for its
    /// owner only), `name` and who is let in
    #[arg(long, value_name = "FILE")]
    openid_provider_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) logging: Logging,
}

/// `2025-10-28=2027-03-31`.
fn sunset(text: &str) -> Result<(ApiVersion, Date), String> {
    let (version, day) =
        text.split_once('=').ok_or("a version and a date are joined by '=': 2025-10-28=2027-03-31")?;
    let known = || ApiVersion::ALL.map(ApiVersion::as_str).join(", ");
    let version = ApiVersion::of_date(version)
        .ok_or_else(|| format!("{version} is no version of the API; there are {}", known()))?;
    if version.deprecated_since().is_none() {
        return Err(format!("version {version} is not deprecated, so that it has no end"));
    }
    let day = day.parse().map_err(|_| format!("{day} is no date such as 2027-03-31"))?;
    Ok((version, day))
}

/// Serves until it is told to stop; what is under way continues at the next start.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let mut interrupts = Interrupts::install()?;
    let home = Home::open(&session.data_dir()?)?;
    let mut config = Config::embedded(home.join("control-plane"), args.api_listen, args.fleet_listen);
    config.database_url = std::env::var(DATABASE_VARIABLE).ok().filter(|url| !url.is_empty());
    config.public_url = args.public_url;
    config.production = args.production;
    config.pccs_url = args.pccs_url;
    config.kms = args.kms_list.as_deref().map(kms_list::read).transpose()?.unwrap_or_default();
    config.chains = args.chains.as_deref().map(chain_list::read).transpose()?.unwrap_or_default();
    config.webhooks.allowed = args.webhook_allow_network;
    config.webhooks.plain_http_to_allowed = args.webhook_allow_http;
    config.prices = prices::read(args.prices.as_deref())?;
    config.inference = args.inference_token_file.map(|control_token_file| InferenceConfig {
        control_token_file,
        requests_per_minute: args.inference_requests_per_minute,
    });
    config.oauth_clients =
        args.oauth_clients.as_deref().map(oauth_clients::read).transpose()?.unwrap_or_default();
    config.openid = args.openid_provider_file.as_deref().map(openid_provider::read).transpose()?;
    config.requests_per_minute = NonZeroU32::new(args.requests_per_minute);
    config.sunsets.extend(args.sunset);
    config.node_names.extend(args.fleet_name);
    config.proof_of_cloud = args
        .platform_list
        .zip(args.platform_list_key)
        .map(|(source, signer)| ProofOfCloudConfig { source, signer });
    let replicated = config.database_url.is_some();

    let control_plane = control_plane::start(config).await?;
    // Only the replica that made the installation knows the key.
    if control_plane.first_key().is_some() || !replicated {
        let access = control_plane::access(&control_plane, &home).await?;
        if access.first {
            session
                .output
                .say(&format!("The administrator's API key is in {}.", home.credentials().display()));
        }
    }
    interrupts.next().await;
    tokio::select! {
        () = control_plane.stop() => {}
        () = interrupts.again() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deprecated_versions_end() {
        assert_eq!(sunset("2025-10-28=2027-03-31"), Ok((ApiVersion::V20251028, Date::constant(2027, 3, 31))));
        for (text, says) in [
            ("2025-10-28", "joined by '='"),
            ("2025-10-28=soon", "soon is no date"),
            ("2025-10-29=2027-03-31", "is no version of the API; there are 2025-10-28, "),
            ("2026-01-21=2027-03-31", "is not deprecated"),
        ] {
            let refusal = sunset(text).unwrap_err();
            assert!(refusal.contains(says), "{text}: {refusal}");
        }
    }
}
