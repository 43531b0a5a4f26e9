//! A whole cloud in one process, with a KMS in a second one, that kills itself, as `kill -9` would, at one boundary of one step.
//!
//! Arguments: data directory, directory of guest images, and optionally the place of its death:
//! `operation/step/boundary`, for example `create/start_vm/CarriedOut`, or `rollout/state/moment`, for example
//! `rollout/rolling_back/Decided`. Prints one line of JSON when it is up: `api`, `http` and, at the first
//! start, `key`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cloister_control_plane::operations::{EngineOptions, Patience};
use cloister_control_plane::{Config, ControlPlane, DEVELOPMENT_ROOT_FILE};
use cloister_fleet_tls::Credentials;
use cloister_node::ingress::{DEFAULT_DOMAIN, Ingress, IngressConfig, Limits};
use cloister_node::{Node, relay};
use cloister_tests::kms::KmsPlace;
use rustix::process::{Signal, getpid, kill_process};

type Failure = Box<dyn std::error::Error>;

const NODE: &str = "mortal";
/// How long an application does badly before a change fails; applications of tests do not get well again.
const UNHEALTHY: Duration = Duration::from_secs(5);

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().ok_or("a data directory is missing")?;
    if first == "relay" {
        return Ok(relay(&PathBuf::from(arguments.next().ok_or("a socket is missing")?))?);
    }
    let images = PathBuf::from(arguments.next().ok_or("a directory of guest images is missing")?);
    let death = arguments.next().and_then(|at| at.into_string().ok());
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Runtime::new()?.block_on(live(PathBuf::from(first), images, death))
}

async fn live(data_dir: PathBuf, images: PathBuf, death: Option<String>) -> Result<(), Failure> {
    let any: SocketAddr = "127.0.0.1:0".parse()?;
    let mut config = Config::embedded(data_dir.join("control-plane"), any, any);
    let kms = KmsPlace::of(&data_dir);
    config.kms = vec![kms.config()];
    die_at(death, &mut config);
    let control_plane = ControlPlane::start(config).await?;

    let mut node_config = cloister_node::Config::new(
        data_dir.join("node"),
        images,
        credentials(&control_plane, &data_dir).await?,
        format!("localhost:{}", control_plane.node_address().port()),
    );
    let this = std::env::current_exe()?.into_os_string().into_string().map_err(|_| "odd path")?;
    node_config.relay_command = vec![this, "relay".to_owned()];
    node_config.host_process = Some(kms.host_process());
    let node = Node::start(node_config).await?;
    let development_root = data_dir.join("control-plane").join(DEVELOPMENT_ROOT_FILE);
    let _kms = kms.start(&development_root, control_plane.api_address()).await;
    let ingress = IngressConfig {
        http_listen: any,
        https: None,
        domain: DEFAULT_DOMAIN.parse()?,
        limits: Limits::default(),
    };
    let ingress = Ingress::start(ingress, node.backends(), node.peers()).await?;

    let up = serde_json::json!({
        "api": format!("http://{}", control_plane.api_address()),
        "http": ingress.http_address(),
        "key": control_plane.first_key().map(|key| key.reveal().to_owned()),
    });
    writeln!(std::io::stdout(), "{up}")?;
    std::future::pending().await
}

/// The node's credentials of an earlier life, or new ones by enrolment.
async fn credentials(
    control_plane: &ControlPlane,
    data_dir: &std::path::Path,
) -> Result<Credentials, Failure> {
    let dir = data_dir.join("node-credentials");
    if let Some(credentials) = Credentials::load(&dir, NODE)? {
        return Ok(credentials);
    }
    let token = control_plane.invite_node().await?;
    let address = format!("localhost:{}", control_plane.node_address().port());
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let credentials = cloister_node::enrol(&address, &token, NODE, names).await?;
    credentials.save(&dir, NODE)?;
    Ok(credentials)
}

/// Ends this process at a place, with no chance to clean up.
fn die_at(place: Option<String>, config: &mut Config) {
    let patience = Patience { unhealthy: UNHEALTHY, ..Patience::default() };
    config.engine = EngineOptions { patience, ..EngineOptions::default() };
    let Some(place) = place else { return };
    let die_here = Arc::new(move |here: String| {
        if here == place {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    });
    let die = Arc::clone(&die_here);
    config.engine.observer =
        Some(Arc::new(move |kind, step, boundary| die(format!("{kind}/{step}/{boundary:?}"))));
    config.rollout_observer =
        Some(Arc::new(move |state, moment| die_here(format!("rollout/{state}/{moment:?}"))));
}
