//! The control plane and the key of its first start.

use cloister_control_plane::{Config, ControlPlane};

use super::{Home, local};
use crate::api::BaseUrl;
use crate::credentials::{ApiKey, Credentials};
use crate::failure::{Exit, Failure};

/// How commands on this machine reach a control plane.
#[derive(Debug)]
pub(crate) struct Access {
    /// Where.
    pub(crate) server: BaseUrl,
    /// With which key.
    pub(crate) key: ApiKey,
    /// Whether this start made the key.
    pub(crate) first: bool,
}

/// Starts the control plane of a data directory.
pub(crate) async fn start(config: Config) -> Result<ControlPlane, Failure> {
    ControlPlane::start(config)
        .await
        .map_err(|error| Failure::local("the control plane did not start", error))
}

/// The key of the first start, or the one kept since then, kept again under the address of this start.
pub(crate) fn access(control_plane: &ControlPlane, home: &Home) -> Result<Access, Failure> {
    let path = home.credentials();
    let mut credentials = Credentials::load(&path)?;
    let first = control_plane.first_key().map(|key| ApiKey::parse(key.reveal())).transpose()?;
    let kept = credentials.current().and_then(|server| credentials.key(server)).cloned();
    let is_first = first.is_some();
    let key = first.or(kept).ok_or_else(|| {
        Failure::new(Exit::Unauthorised, format!("the API key of this cloud is not in {}", path.display()))
            .hint("put the file back from a backup")
    })?;
    let server = local_url(control_plane)?;
    credentials.remember(server.clone(), key.clone());
    credentials.store(&path)?;
    Ok(Access { server, key, first: is_first })
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
