//! A key management service in a process of its own, onboarded at its first start.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_chain::Address;
use cloister_control_plane::kms::{KmsConfig, KmsContract};
use cloister_kms_api::{BootstrapRequest, method};
use cloister_ra_tls::{AuthorityPolicy, authority_client_config, public_key_of_pem};
use cloister_verifier::Clock;
use url::Url;

use super::secret_file::make_token;
use super::service::{BoxedError, Service};
use crate::failure::Failure;

/// Its directory in that of the cloud.
pub(crate) const DIRECTORY: &str = "kms";
/// The administrator's token in that directory.
pub(crate) const ADMIN_TOKEN_FILE: &str = "admin-token";
/// The certificates of its roots in that directory.
pub(crate) const ROOT_FILE: &str = "root-ca.pem";
/// The port for releases in that directory.
const PORT_FILE: &str = "port";
/// Name of the KMS whose built-in rules decide.
pub(crate) const SLUG: &str = "local";
/// Under which address guests reach this machine.
const HOST_FOR_GUESTS: &str = "10.0.2.2";

/// Longest that one question to it may take; the first root is made with fresh evidence.
const CALL_TIMEOUT: Duration = Duration::from_secs(40);

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Its name in the installation.
    pub(crate) slug: &'static str,
    /// The contract that decides instead of the built-in rules.
    pub(crate) governed: Option<Governed>,
    /// Its own directory, which has the name [`DIRECTORY`].
    pub(crate) dir: PathBuf,
    /// Onboarding and release.
    pub(crate) listen: SocketAddr,
    /// Directory.
    pub(crate) directory: SocketAddr,
    /// Where the node answers as its guest agent.
    pub(crate) agent_socket: PathBuf,
    /// The root of the development vendor, PEM.
    pub(crate) development_root: PathBuf,
    /// Where the vendor serves its collateral.
    pub(crate) pccs_url: String,
    /// What it logs.
    pub(crate) log: String,
}

/// A contract that decides for a KMS.
#[derive(Debug, Clone)]
pub(crate) struct Governed {
    /// Its chain, a development chain.
    pub(crate) chain_id: u64,
    /// Its address.
    pub(crate) contract: Address,
    /// File with the endpoints of the chain.
    pub(crate) endpoints: PathBuf,
}

impl Governed {
    /// The options of `serve kms` that say so. A development chain makes blocks when there is something to put into
    /// them: no block has others on top, and the newest one may be old.
    fn options(&self) -> Vec<String> {
        let endpoints = self.endpoints.display().to_string();
        let (chain_id, contract) = (self.chain_id.to_string(), self.contract.to_string());
        let options = [
            ("--kms-contract", contract.as_str()),
            ("--chain-id", &chain_id),
            ("--chain-rpc-file", &endpoints),
            ("--chain-confirmations", "0"),
            ("--chain-max-head-age", "0"),
        ];
        options.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
    }
}

impl Setup {
    /// How the control plane knows it.
    pub(crate) fn config(&self) -> Result<KmsConfig, Failure> {
        let url = |text: String| {
            text.parse::<Url>().map_err(|error| Failure::local("the address of the KMS makes no URL", error))
        };
        Ok(KmsConfig {
            slug: self.slug.to_owned(),
            guest_url: url(format!("https://{HOST_FOR_GUESTS}:{}", self.listen.port()))?,
            directory_url: url(self.directory_url())?,
            ca_file: self.dir.join(ROOT_FILE),
            admin_token_file: self.dir.join(ADMIN_TOKEN_FILE),
            contract: self.governed.as_ref().map(|governed| KmsContract {
                chain_id: governed.chain_id,
                address: governed.contract.into_array(),
            }),
        })
    }

    /// Where this machine reaches the directory.
    pub(crate) fn directory_url(&self) -> String {
        format!("https://{}", super::local(self.directory))
    }

    /// Makes its directory, and the administrator's token at the first start.
    pub(crate) fn prepare(&self) -> Result<(), Failure> {
        let failed = |error| Failure::local(format!("cannot use {}", self.dir.display()), error);
        std::fs::create_dir_all(&self.dir).map_err(failed)?;
        make_token(&self.dir.join(ADMIN_TOKEN_FILE)).map_err(failed)?;
        std::fs::write(self.dir.join(PORT_FILE), self.listen.port().to_string()).map_err(failed)
    }

    /// Whether the directory answers and shows the root that is in this directory.
    async fn health(&self) -> Result<(), BoxedError> {
        let root = tokio::fs::read_to_string(self.dir.join(ROOT_FILE)).await?;
        let policy = AuthorityPolicy::kms(Some(public_key_of_pem(&root)?));
        let clock = Clock::system();
        let tls = authority_client_config(policy, None, move || clock.now())?;
        let http = client().tls_backend_preconfigured(tls).build()?;
        http.get(format!("{}/health", self.directory_url())).send().await?.error_for_status()?;
        Ok(())
    }

    /// Makes the first root and ends onboarding. One that is made already stays: a start that was
    /// interrupted in between goes on here.
    async fn onboard(&self) -> Result<(), BoxedError> {
        let base = format!("http://{}", super::local(self.listen));
        let http = client().build()?;
        let request = BootstrapRequest { domain: HOST_FOR_GUESTS.to_owned() };
        let answer = http.post(format!("{base}{}?json", method::BOOTSTRAP)).json(&request).send().await?;
        let is_new = answer.status().is_success();
        http.get(format!("{base}{}", method::FINISH)).send().await?.error_for_status()?;
        if is_new {
            tracing::info!("the KMS made its first root");
        }
        Ok(())
    }
}

impl Service for Setup {
    const NAME: &'static str = "key management service";

    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--data-dir".into()];
        arguments.push(self.dir.parent().unwrap_or(&self.dir).into());
        arguments.extend(["serve", "kms"].map(OsString::from));
        let options: [(&str, OsString); 6] = [
            ("--listen", self.listen.to_string().into()),
            ("--directory-listen", self.directory.to_string().into()),
            ("--agent-socket", self.agent_socket.as_os_str().to_owned()),
            ("--admin-token-file", self.dir.join(ADMIN_TOKEN_FILE).into()),
            ("--development-root", self.development_root.as_os_str().to_owned()),
            ("--pccs-url", self.pccs_url.as_str().into()),
        ];
        arguments.extend(options.into_iter().flat_map(|(name, value)| [name.into(), value]));
        arguments.extend(self.governed.iter().flat_map(Governed::options).map(OsString::from));
        arguments
    }

    fn log(&self) -> &str {
        &self.log
    }

    /// Onboards it if nobody has.
    async fn bring_up(&self) -> Result<(), BoxedError> {
        let Err(unhealthy) = self.health().await else { return Ok(()) };
        self.onboard().await.map_err(|_| unhealthy)?;
        self.health().await
    }
}

fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(CALL_TIMEOUT)
}

/// The port of the last start of a cloud, for CVMs keep the address.
pub(crate) fn port_before(home: &Path) -> Option<u16> {
    std::fs::read_to_string(home.join(DIRECTORY).join(PORT_FILE)).ok()?.parse().ok()
}
