//! `cloister serve node`.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cloister_fleet_tls::{Credentials, JoinToken};
use cloister_node::ingress::Domain;
use cloister_node::{Config, OnExit};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Logging;
use crate::commands::{Outcome, up};
use crate::failure::{Exit, Failure};
use crate::parts::node::{self, Newcomer, NodePart, Way};
use crate::parts::{HostOptions, Interrupts};
use crate::secrets;
use crate::session::Session;

/// Arguments of `serve node`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "First start: cloister nodes invite | cloister serve node --control-plane HOST:PORT …"
)]
pub(crate) struct Args {
    /// The control plane's listener for nodes
    #[arg(long, value_name = "HOST:PORT")]
    control_plane: String,
    /// Name of the node, unique in the installation; used at the first start [default: the host name]
    #[arg(long)]
    name: Option<String>,
    /// Listener for the control plane (mutual TLS)
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8702")]
    listen: SocketAddr,
    /// `host:port` under which the control plane reaches that listener
    #[arg(long, value_name = "HOST:PORT")]
    endpoint: String,
    /// Region label
    #[arg(long, default_value = "local")]
    region: String,
    /// Domain of the applications on this node; a wildcard DNS record must point here
    #[arg(long)]
    domain: Domain,
    /// Ingress to the applications, plain HTTP
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:80")]
    http_listen: SocketAddr,
    /// Ingress to the applications, HTTPS
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:443")]
    https_listen: SocketAddr,
    /// PEM certificate chain for `*.DOMAIN`; without it the ingress serves plain HTTP only
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// PEM private key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Directory with guest images [default: `$CLOISTER_GUEST_IMAGES` or guest-images in the data
    /// directory]
    #[arg(long, value_name = "DIR", env = "CLOISTER_GUEST_IMAGES", hide_env = true)]
    guest_images: Option<PathBuf>,
    /// Power CVMs off when the node stops, instead of leaving them running for the next start
    #[arg(long, value_name = "SECONDS")]
    shutdown_timeout: Option<u64>,
    /// Refuse to run CVMs without TEE hardware
    #[arg(long, env = "CLOISTER_PRODUCTION", hide_env = true)]
    production: bool,
    #[command(flatten)]
    host: HostOptions,
    #[command(flatten)]
    pub(super) logging: Logging,
}

/// Serves until it is told to stop.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let mut interrupts = Interrupts::install()?;
    let data_dir = session.data_dir()?;
    let dir = data_dir.join("node");
    let guest_images = up::find_guest_images(args.guest_images.clone(), &data_dir)?;
    let credentials = match node::credentials(&dir)? {
        Some(credentials) => credentials,
        None => join(&args, &dir).await?,
    };
    let https = match (&args.tls_certificate, &args.tls_key) {
        (Some(certificate), Some(key)) => Some((args.https_listen, tls(certificate, key)?)),
        _ => None,
    };
    let way = Way { http: args.http_listen, https, domain: args.domain };
    let mut config = Config::new(dir, guest_images, credentials, args.control_plane);
    config.listen = args.listen;
    config.endpoint = Some(args.endpoint);
    config.region = args.region;
    config.production = args.production;
    args.host.apply(&mut config);
    config.ingress_url_template = way.url_template(true);
    let node = NodePart::start(config, way).await?;
    interrupts.next().await;
    let on_exit =
        args.shutdown_timeout.map_or(OnExit::LeaveRunning, |s| OnExit::Shutdown(Duration::from_secs(s)));
    tokio::select! {
        () = node.stop(on_exit) => {}
        () = interrupts.again() => {}
    }
    Ok(())
}

async fn join(args: &Args, dir: &Path) -> Result<Credentials, Failure> {
    let how = "give it on stdin: cloister nodes invite | cloister serve node …";
    if std::io::stdin().is_terminal() {
        return Err(
            Failure::new(Exit::Unauthorised, "this node has not joined yet and needs a join token").hint(how)
        );
    }
    let token: JoinToken = secrets::piped("the join token")?
        .trim()
        .parse()
        .map_err(|error| Failure::usage("the join token is wrong").caused_by(error).hint(how))?;
    let host = args.endpoint.rsplit_once(':').map_or(args.endpoint.as_str(), |(host, _)| host);
    let reached_at = vec![host.trim_matches(['[', ']']).to_owned()];
    let name = args.name.clone().unwrap_or_else(host_name);
    node::join(Newcomer { control_plane: &args.control_plane, name: &name, reached_at, dir }, &token).await
}

fn tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Failure> {
    let unreadable = |path: &Path| Failure::usage(format!("{} is not usable PEM", path.display()));
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(certificate).caused_by(error))?;
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key).caused_by(error))?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .map_err(|error| Failure::usage("the certificate and the key do not fit").caused_by(error))?;
    Ok(Arc::new(config))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
