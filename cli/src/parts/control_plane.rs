//! The control plane and the key of its first start.

use cloister_control_plane::{Config, ControlPlane};

use super::{Home, local};
use crate::api::BaseUrl;
use crate::credentials::{ApiKey, Credentials};
use crate::failure::Failure;

/// How commands on this machine reach a control plane.
#[derive(Debug)]
pub(crate) struct Access {
    /// Where.
    pub(crate) server: BaseUrl,
    /// With which key.
    pub(crate) key: ApiKey,
    /// Whether this start made the key, so that nobody has seen it yet.
    pub(crate) first: bool,
}

/// Starts the control plane of a data directory.
pub(crate) async fn start(config: Config) -> Result<ControlPlane, Failure> {
    ControlPlane::start(config)
        .await
        .map_err(|error| Failure::local("the control plane did not start", error))
}

/// The key of the first start, or the one kept since then, or another one when it was lost; kept under
/// the address of this start.
pub(crate) async fn access(control_plane: &ControlPlane, home: &Home) -> Result<Access, Failure> {
    let path = home.credentials();
    let mut credentials = Credentials::load(&path)?;
    let kept = credentials.current().and_then(|server| credentials.key(server)).cloned();
    let (key, first) = match (control_plane.first_key(), kept) {
        (Some(key), _) => (ApiKey::parse(key.reveal())?, true),
        (None, Some(kept)) => (kept, false),
        (None, None) => {
            let key = control_plane.recover_key().await;
            let key = key.map_err(|error| Failure::local("the administrator has no key", error))?;
            (ApiKey::parse(key.reveal())?, true)
        }
    };
    let server = local_url(control_plane)?;
    credentials.remember(server.clone(), key.clone());
    credentials.store(&path)?;
    Ok(Access { server, key, first })
}

fn local_url(control_plane: &ControlPlane) -> Result<BaseUrl, Failure> {
    let mut address = local(control_plane.api_address());
    if !address.ip().is_loopback() {
        // The key's file serves commands on this machine only, whatever network the address belongs to.
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let url = format!("http://{address}").parse();
    url.map_err(|error| Failure::local("the address of the API makes no URL", error))
}
