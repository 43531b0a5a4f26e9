//! The parts of a gateway, as its configuration wants them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use cloister_verifier::Clock;

use super::watch::tls_key;
use super::{StartError, Tls};
use crate::admission::{Control, ControlPlane, Hooks, KeyHash, Keys};
use crate::config::GatewayConfig;
use crate::gateway::{Gateway, Live};
use crate::observe::Traces;
use crate::proof::Notary;
use crate::record::{Backing, Settings, Store};
use crate::verification::{Trust, Verifications};

/// Shortest token of an operator, in bytes.
const MIN_TOKEN_BYTES: usize = 16;
/// Largest file with a token, in bytes.
const MAX_TOKEN_BYTES: usize = 512;

pub(super) struct Parts {
    control: Control,
    store: Store,
    notary: Notary,
    verifications: Verifications,
    traces: Option<Traces>,
}

impl Parts {
    pub(super) async fn start(
        config: &GatewayConfig,
        tls: Option<&Tls>,
        backing: Backing,
        clock: &Clock,
    ) -> Result<Self, StartError> {
        let tls_keys = tls.map(|tls| tls_key(tls.certificate.spki_sha256()));
        let notary = Notary::start(config, tls_keys.into_iter().collect(), clock.clone())
            .await
            .map_err(|error| StartError::Part("identity", error.into()))?;
        let store = store(config, backing, clock.clone()).await?;
        let control = match &config.control {
            None => Control::Keys(Keys::new(config, store.clone())),
            Some(control) => Control::ControlPlane(
                ControlPlane::start(control, store.clone(), clock.clone())
                    .map_err(|error| StartError::Part("control plane's client", error.into()))?,
            ),
        };
        let trust = Trust::new(&config.trust, clock.clone())
            .and_then(|trust| trust.check(&config.upstreams).map(|()| trust))
            .map_err(|error| StartError::Part("verification of upstreams", error.into()))?;
        let verifications = Verifications::new(trust, store.clone(), clock.clone());
        let traces = config.traces.as_ref().map(Traces::start).transpose();
        let traces = traces.map_err(|error| StartError::Part("traces", error.into()))?;
        Ok(Self { control, store, notary, verifications, traces })
    }

    pub(super) fn gateway(self, live: Live) -> Gateway {
        Gateway::new(live, self.control, self.store, self.notary, self.verifications, self.traces)
    }
}

/// Opens the store, which may read the whole of it.
async fn store(config: &GatewayConfig, backing: Backing, clock: Clock) -> Result<Store, StartError> {
    let dir = config.state_dir.clone();
    let settings = Settings {
        receipts_s: config.receipts.retention_s,
        rows_s: config.receipts.usage_retention_s,
        is_posting: config.control.is_some(),
        is_logging: config.receipts.log,
        ..Settings::default()
    };
    let open = move || Store::open_with(&dir, settings, clock, backing);
    let opened = tokio::task::spawn_blocking(open).await;
    let part = |error| StartError::Part("store", error);
    opened.map_err(|error| part(error.into()))?.map_err(|error| part(error.into()))
}

/// What a configuration names in other files: all of it is read before any of the configuration holds.
pub(super) struct Prepared {
    token: Option<KeyHash>,
    hooks: Option<Hooks>,
}

impl Prepared {
    pub(super) fn read(config: &GatewayConfig) -> Result<Self, StartError> {
        let token = config.admin_token_file.as_deref().map(token).transpose()?;
        let hooks = config.control.as_ref().map(Hooks::new).transpose();
        let hooks = hooks.map_err(|error| StartError::Part("control plane's client", error.into()))?;
        Ok(Self { token, hooks })
    }

    /// Brings what depends on the configuration in step with the one that holds, which cannot fail.
    pub(super) fn hold(self, gateway: &Gateway) {
        let live = gateway.live();
        match (&gateway.control, self.hooks) {
            (Control::Keys(keys), None) => keys.configure(&live.config),
            (Control::ControlPlane(control_plane), Some(hooks)) => control_plane.configure(hooks),
            // A file that changes between keys and a control plane needs a start.
            _ => {}
        }
        gateway.office.set_token(self.token);
        gateway.busy_poll.set_longest(Duration::from_micros(live.config.busy_poll_us));
    }
}

/// The hash of a token in a file.
fn token(path: &Path) -> Result<KeyHash, StartError> {
    let failed = |error| StartError::Token(path.to_owned(), error);
    let mut text = zeroize::Zeroizing::new(String::new());
    File::open(path)
        .map_err(failed)?
        .take(MAX_TOKEN_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let token = text.trim();
    let is_token = (MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_token { Ok(KeyHash::of(token)) } else { Err(failed(io::ErrorKind::InvalidData.into())) }
}
