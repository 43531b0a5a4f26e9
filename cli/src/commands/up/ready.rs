//! Waiting for things that become ready by themselves.

use std::net::SocketAddr;
use std::time::Duration;

use cloister_management_api::{NodeRef, NodeStatus};
use tokio::time::{Instant, sleep};
use url::Url;

use crate::api::{Client, read};
use crate::failure::{Exit, Failure};

const PAUSE: Duration = Duration::from_millis(200);
/// The first start of a node tries out hardware acceleration.
const NODE_PATIENCE: Duration = Duration::from_mins(1);
const APP_PATIENCE: Duration = Duration::from_mins(3);
/// Short, because the network in front of a guest accepts connections before the guest does.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits until a node takes CVMs.
pub(super) async fn node_online(client: &Client) -> Result<(), Failure> {
    let deadline = Instant::now() + NODE_PATIENCE;
    while Instant::now() < deadline {
        match client.get(&["attestations", "nodes"], &[]).await {
            Ok(document) => {
                let nodes: Vec<NodeRef> = read(&document)?;
                if nodes.iter().any(|node| node.status == Some(NodeStatus::Online)) {
                    return Ok(());
                }
            }
            Err(failure) if matches!(failure.exit, Exit::Unreachable | Exit::Conflict) => {}
            Err(failure) => return Err(failure),
        }
        sleep(PAUSE).await;
    }
    Err(Failure::new(Exit::TimedOut, "the node did not come online").hint("see why: cloister up -v"))
}

/// Waits until the application answers with success through the ingress at `ingress`. The name in the
/// URL is not looked up: not every resolver knows names below `.localhost`.
pub(super) async fn app_answers(url: &Url, ingress: SocketAddr, cvm: &str) -> Result<(), Failure> {
    let host = url.host_str().unwrap_or_default();
    let http = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .timeout(PROBE_TIMEOUT)
        .resolve(host, ingress)
        .build()
        .map_err(|error| Failure::local("cannot make an HTTP client", error))?;
    let deadline = Instant::now() + APP_PATIENCE;
    let mut last = String::from("no answer");
    while Instant::now() < deadline {
        match http.get(url.clone()).send().await {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => last = format!("it answers {}", answer.status()),
            Err(error) => last = error.without_url().to_string(),
        }
        sleep(PAUSE).await;
    }
    Err(Failure::new(Exit::TimedOut, format!("{cvm} runs, but {url} is of no use: {last}"))
        .hint(format!("see what it says: cloister cvms logs {cvm}")))
}
