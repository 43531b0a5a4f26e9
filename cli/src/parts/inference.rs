//! An inference gateway in a process of its own, whose keys and accounts are those of the cloud beside it.
//!
//! ```text
//! inference-gateway/
//!   gateway.json        configuration of the operator's own, if there is one
//!   default.json        what holds without it, written at every start: a model that echoes
//!   control-token       by which the control plane knows the gateway
//!   key                 an API key of scope `inference`, for people on this machine
//!   state/              receipts, sessions and usage
//! ```

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_control_plane::inference::InferenceConfig;
use cloister_echo_upstream::MODEL as ECHO;
use cloister_inference_gateway::config::GatewayConfig;
use cloister_management_api::{KeyScope, Token};
use cloister_verifier::Clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::service::{BoxedError, Service};
use super::{local, secret_file};
use crate::api::{Client, is_loopback, read};
use crate::credentials::ApiKey;
use crate::failure::{Exit, Failure};
use crate::files;

/// Its directory in that of the cloud.
const DIRECTORY: &str = "inference-gateway";
const OWN_FILE: &str = "gateway.json";
const DEFAULT_FILE: &str = "default.json";
const CONTROL_TOKEN_FILE: &str = "control-token";
const KEY_FILE: &str = "key";
const STATE: &str = "state";
/// Name of that key in the workspace.
const KEY_NAME: &str = "cloister up";
/// Days for which it works.
const KEY_DAYS: u32 = 90;
/// How long it has to work still when the cloud starts; otherwise there is another one.
const KEY_LEFT: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Requests that each key may begin in a minute: more than a person makes, and an end for a program that got stuck.
const REQUESTS_PER_MINUTE: Option<NonZeroU32> = NonZeroU32::new(600);
/// What the model that echoes is called.
const MODEL: &str = "cloister/echo";
/// Largest configuration, and largest file of a key, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_KEY_BYTES: u64 = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(5);

/// A configuration that holds instead of the default one.
#[derive(Debug)]
pub(crate) struct Own {
    /// Where it is.
    pub(crate) file: PathBuf,
    config: GatewayConfig,
}

impl Own {
    /// That of a cloud's directory, if there is one. Fails if it is of no use.
    pub(crate) fn find(home: &Path) -> Result<Option<Self>, Failure> {
        let file = home.join(DIRECTORY).join(OWN_FILE);
        let refused = |what: String| {
            let message = format!("the inference gateway's {} cannot be used: {what}", file.display());
            Failure::usage(message)
                .hint("docs/inference-gateway.md has its members; without the file the default holds")
        };
        let read = files::read_own(&file, MAX_FILE_BYTES);
        let Some(text) = read.map_err(|failure| refused(failure.chain()))? else { return Ok(None) };
        let config = GatewayConfig::parse(text.as_bytes()).map_err(|error| refused(error.to_string()))?;
        if config.bind.port() == 0 {
            return Err(refused("bind: a port is needed, so that it is known where it listens".to_owned()));
        }
        Ok(Some(Self { file, config }))
    }

    /// Where it listens.
    pub(crate) const fn bind(&self) -> SocketAddr {
        self.config.bind
    }
}

/// What to start.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Its own directory.
    dir: PathBuf,
    own: Option<Own>,
    /// Where it listens.
    listen: SocketAddr,
    /// Where the model that echoes listens.
    pub(crate) echo: SocketAddr,
    /// The management API, which is where gateways ask.
    api: SocketAddr,
    /// Where the node answers as its guest agent.
    agent_socket: PathBuf,
    /// What it logs.
    log: String,
}

/// What a person has to know to use it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Base URL for clients.
    pub(crate) base_url: String,
    /// The configuration that holds.
    pub(crate) config: PathBuf,
    /// The configuration that would hold instead of it; `None` where it does.
    pub(crate) own: Option<PathBuf>,
    /// A model that answers; `None` where the operator chose the models.
    pub(crate) model: Option<&'static str>,
    /// Where the key is; `None` where the cloud's keys are not those of the gateway.
    pub(crate) key_file: Option<PathBuf>,
}

impl Setup {
    /// Beside a cloud in `home`, unless `own` says otherwise.
    pub(crate) fn new(
        home: &Path,
        own: Option<Own>,
        [listen, echo, api]: [SocketAddr; 3],
        agent_socket: PathBuf,
        log: String,
    ) -> Self {
        Self { dir: home.join(DIRECTORY), own, listen, echo, api, agent_socket, log }
    }

    /// Makes its directory, the token at the first start, and the default configuration.
    pub(crate) fn prepare(&self) -> Result<(), Failure> {
        let write = || {
            std::fs::create_dir_all(&self.dir)?;
            secret_file::make_token(&self.dir.join(CONTROL_TOKEN_FILE))?;
            secret_file::replace(&self.dir.join(DEFAULT_FILE), &format!("{:#}", self.default_config()))
        };
        write().map_err(|error| Failure::local(format!("cannot use {}", self.dir.display()), error))
    }

    /// How the control plane knows it.
    pub(crate) fn config(&self) -> InferenceConfig {
        InferenceConfig {
            control_token_file: self.dir.join(CONTROL_TOKEN_FILE),
            requests_per_minute: REQUESTS_PER_MINUTE,
        }
    }

    /// Where it is and what it is asked with.
    pub(crate) fn place(&self) -> Place {
        let scheme = if self.has_tls() { "https" } else { "http" };
        let default = self.dir.join(DEFAULT_FILE);
        Place {
            base_url: format!("{scheme}://{}/v1", local(self.listen)),
            config: self.own.as_ref().map_or(default, |own| own.file.clone()),
            own: self.own.is_none().then(|| self.dir.join(OWN_FILE)),
            model: self.own.is_none().then_some(MODEL),
            key_file: self.asks_this_cloud().then(|| self.dir.join(KEY_FILE)),
        }
    }

    fn has_tls(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.config.tls.is_some())
    }

    fn asks_this_cloud(&self) -> bool {
        let Some(own) = &self.own else { return true };
        let url = own.config.control.as_ref().map(|control| &control.url);
        url.is_some_and(|url| is_loopback(url) && url.port_or_known_default() == Some(self.api.port()))
    }

    fn default_config(&self) -> Value {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        json!({
            "bind": self.listen,
            "state_dir": path(&self.dir.join(STATE)),
            "agent_socket": path(&self.agent_socket),
            "control": {
                "url": format!("http://{}/internal/inference", local(self.api)),
                "token_file": path(&self.dir.join(CONTROL_TOKEN_FILE)),
            },
            "upstreams": [{
                "name": ECHO,
                "base_url": format!("http://{}", local(self.echo)),
                "models": { MODEL: ECHO },
                "zdr": true,
            }],
            "models": [{
                "id": MODEL,
                "name": "Echo (no model)",
                "description": "Answers with what it is asked, for trying out. No model is behind it.",
            }],
        })
    }
}

impl Service for Setup {
    const NAME: &'static str = "inference gateway";

    fn arguments(&self) -> Vec<OsString> {
        let words = ["serve", "inference-gateway", "--config"].map(OsString::from);
        words.into_iter().chain([self.place().config.into()]).collect()
    }

    fn log(&self) -> &str {
        &self.log
    }

    async fn bring_up(&self) -> Result<(), BoxedError> {
        let address = local(self.listen);
        if self.has_tls() {
            // Whose certificate it is, and whether this machine trusts it, is between it and its clients.
            TcpStream::connect(address).await?;
            return Ok(());
        }
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(TIMEOUT).build()?;
        http.get(format!("http://{address}/health")).send().await?.error_for_status()?;
        Ok(())
    }
}

/// The key that is kept in a file, or another one where that does not work any more, or not for long, and whether it is
/// a new one.
pub(crate) async fn key(client: &Client, file: &Path) -> Result<(ApiKey, bool), Failure> {
    let known: Vec<Token> = read(&client.get(&["tokens"], &[]).await?)?;
    let now = Clock::system().now();
    let works = |key: &ApiKey| {
        let token = known.iter().find(|token| key.reveal().starts_with(&token.token_prefix));
        token.is_some_and(|token| works_on(token, now))
    };
    if let Some(key) = kept(file)?.filter(works) {
        return Ok((key, false));
    }
    let asked = json!({ "name": KEY_NAME, "scope": KeyScope::Inference, "expires_in_days": KEY_DAYS });
    let made: Token = read(&client.post(&["tokens"], Some(&asked)).await?)?;
    let secret = made.token.ok_or_else(|| Failure::new(Exit::Failed, "the server made no key"))?;
    let key = ApiKey::parse(&secret)?;
    secret_file::replace(file, key.reveal())
        .map_err(|error| Failure::local(format!("cannot write {}", file.display()), error))?;
    Ok((key, true))
}

/// Whether a key works, and will for some time.
fn works_on(token: &Token, now: Timestamp) -> bool {
    token.is_active && token.expires_at.is_none_or(|end| end.duration_since(now) > KEY_LEFT)
}

fn kept(file: &Path) -> Result<Option<ApiKey>, Failure> {
    Ok(files::read_own(file, MAX_KEY_BYTES)?.and_then(|text| ApiKey::parse(&text).ok()))
}

#[cfg(test)]
mod tests {
    use cloister_management_api::TokenId;

    use super::*;

    fn setup(home: &Path) -> Setup {
        let addresses = ["127.0.0.1:8086", "127.0.0.1:8711", "127.0.0.1:8700"];
        let own = Own::find(home).unwrap();
        let log = "error".to_owned();
        Setup::new(home, own, addresses.map(|address| address.parse().unwrap()), home.join("sock"), log)
    }

    #[test]
    fn the_default_is_a_configuration_that_may_be_copied_and_changed() {
        let home = tempfile::tempdir().unwrap();
        let default = setup(home.path());
        default.prepare().unwrap();
        let place = default.place();
        assert_eq!((&*place.base_url, place.model), ("http://127.0.0.1:8086/v1", Some(MODEL)));
        let text = std::fs::read_to_string(&place.config).unwrap();
        let mut document: Value = serde_json::from_str(&text).unwrap();
        document["bind"] = json!("127.0.0.1:9999");
        document["upstreams"][0]["name"] = json!("another");
        let file = place.own.unwrap();
        std::fs::write(&file, document.to_string()).unwrap();

        let own = Own::find(home.path()).unwrap().unwrap();
        assert_eq!((own.bind(), &own.file), ("127.0.0.1:9999".parse().unwrap(), &file));
        let place = setup(home.path()).place();
        assert_eq!((place.config, place.own, place.model), (file.clone(), None, None));
        assert!(place.key_file.is_some(), "its keys are those of the cloud");
        document["control"]["url"] = json!("https://elsewhere.example/internal/inference");
        std::fs::write(&file, document.to_string()).unwrap();
        assert_eq!(setup(home.path()).place().key_file, None);
    }

    #[test]
    fn a_key_is_replaced_before_it_ends() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (is_active, expires_at, works) in [
            (true, None, true),
            (true, Some("2026-04-01T00:00:00Z"), true),
            (true, Some("2026-01-15T00:00:00Z"), false),
            (false, Some("2026-04-01T00:00:00Z"), false),
            (false, None, false),
        ] {
            let token = json!({
                "id": TokenId(1), "name": KEY_NAME, "token_prefix": "x", "scope": "inference", "is_active": is_active,
                "created_at": "2026-01-01T00:00:00Z", "last_used_at": null, "expires_at": expires_at,
                "default_version": "",
            });
            let token: Token = serde_json::from_value(token).unwrap();
            assert_eq!(works_on(&token, now), works, "{is_active} {expires_at:?}");
        }
    }

    #[test]
    fn a_configuration_that_is_of_no_use_is_named_and_not_repeated() {
        let home = tempfile::tempdir().unwrap();
        assert!(Own::find(home.path()).unwrap().is_none());
        setup(home.path()).prepare().unwrap();
        let text = std::fs::read_to_string(setup(home.path()).place().config).unwrap();
        let without_port = text.replace("127.0.0.1:8086", "127.0.0.1:0");
        for (text, word) in [
            (&b"{"[..], "early"),
            (b"{\"secret\": 1}", "secret"),
            (without_port.as_bytes(), "bind"),
            (b"\xff", "UTF-8"),
        ] {
            std::fs::write(home.path().join(DIRECTORY).join(OWN_FILE), text).unwrap();
            let failure = Own::find(home.path()).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            let said = failure.message;
            assert!(said.contains(OWN_FILE) && said.contains(word) && !said.contains("token_file"), "{said}");
        }
    }
}
