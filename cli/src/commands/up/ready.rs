//! Waiting for things that become ready by themselves.

use std::net::SocketAddr;
use std::time::Duration;

use cloister_management_api::{NodeRef, NodeStatus};
use tokio::time::{Instant, sleep};
use url::Url;

use super::cloud::Cloud;
use crate::api::{Client, read};
use crate::commands::cvms::app_url;
use crate::commands::follow;
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

/// Waits until the application of a CVM answers with success through the ingress of this process; where
/// it does. The server is asked for the URL each time: right after a start it may still show that of the
/// start before.
pub(super) async fn app_answers(client: &Client, cloud: &Cloud, cvm: &str) -> Result<Url, Failure> {
    let deadline = Instant::now() + APP_PATIENCE;
    loop {
        let (_, detail) = follow::detail(client, cvm).await?;
        let url = app_url(&detail).and_then(|text| Url::parse(&text).ok());
        let url =
            url.ok_or_else(|| Failure::new(Exit::Failed, format!("the server gave no URL for {cvm}")))?;
        let Err(reason) = probe(&url, cloud.ingress_address(&url)).await else { return Ok(url) };
        if Instant::now() > deadline {
            let message = format!("{cvm} runs, but {url} is of no use: {reason}");
            return Err(Failure::new(Exit::TimedOut, message)
                .hint(format!("see what it says: cloister cvms logs {cvm}")));
        }
        sleep(PAUSE).await;
    }
}

/// Asks once, at `ingress`: not every resolver knows names below `.localhost`. Fails with the reason.
async fn probe(url: &Url, ingress: SocketAddr) -> Result<(), String> {
    let http = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .timeout(PROBE_TIMEOUT)
        .resolve(url.host_str().unwrap_or_default(), ingress)
        .build()
        .map_err(|error| error.to_string())?;
    let answer = http.get(url.clone()).send().await.map_err(|error| error.without_url().to_string())?;
    if answer.status().is_success() { Ok(()) } else { Err(format!("it answers {}", answer.status())) }
}
