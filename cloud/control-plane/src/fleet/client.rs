//! Calls to nodes over mutual TLS.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use cloister_evidence::AttestationDocument;
use cloister_fleet_tls::{Credentials, FleetTlsError, Identity, client_config_for};
use cloister_node_api::{
    DrainRequest, GuestStats, ImportedImage, NodeError, NodeErrorCode, ShutdownRequest, VmNetwork, VmReport,
    VmSpec, paths,
};
use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use tracing::{debug, error};
use url::Url;
use uuid::Uuid;

use super::standing::NodeStanding;
use super::{Choice, Demand, PlaceError, Scheduler, VmChanges};
use crate::clock::Clock;
use crate::operations::{NodeCallError, Nodes};
use crate::store::{DeviceRow, Store, StoreError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A node answers power calls when they are done; taking the power away is the slowest.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_ERROR_BYTES: usize = 16 * 1024;
/// A list of all containers of a guest, or of all images of a workspace, stays below it.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// An answer of a node that is passed on while it arrives.
pub struct NodeStream {
    /// Its content type.
    pub content_type: String,
    /// Its body.
    pub body: std::pin::Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>,
}

/// The nodes of this installation.
pub struct Fleet {
    store: Store,
    clock: Clock,
    changes: VmChanges,
    credentials: Credentials,
    /// One client for each node, by name: it speaks to nobody else, wherever the node says it is.
    clients: Mutex<HashMap<String, Client>>,
    scheduler: Scheduler,
}

impl Fleet {
    pub(crate) fn new(store: Store, clock: Clock, changes: VmChanges, credentials: Credentials) -> Self {
        Self {
            store,
            clock,
            changes,
            credentials,
            clients: Mutex::default(),
            scheduler: Scheduler::default(),
        }
    }

    fn client(&self, node: &str) -> Result<Client, ClientError> {
        if let Some(client) = self.clients.lock().get(node) {
            return Ok(client.clone());
        }
        let client = Client::builder()
            .tls_backend_preconfigured(client_config_for(&self.credentials, Identity::Node(node.to_owned()))?)
            .https_only(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        self.clients.lock().insert(node.to_owned(), client.clone());
        Ok(client)
    }

    /// All nodes with their reports, usage and platforms, as they are now.
    pub async fn standings(&self) -> Result<Vec<NodeStanding>, StoreError> {
        let mut standings = self.scheduler.reports().standings(&self.store, self.clock.now_ms()).await?;
        // Of each node the latest comes last and stays.
        let mut devices: HashMap<i64, DeviceRow> =
            self.store.devices().await?.into_iter().map(|device| (device.node_id, device)).collect();
        for standing in &mut standings {
            standing.device = devices.remove(&standing.node.id);
        }
        Ok(standings)
    }

    /// Chooses a node for a CVM; nothing is reserved. See [`Scheduler::place`].
    pub async fn place(&self, demand: &Demand) -> Result<Choice, PlaceError> {
        self.scheduler.place(&self.store, demand, self.clock.now_ms()).await
    }

    /// The last report, usage and platform of one node, as it is now.
    pub async fn standing(&self, node: i64) -> Result<Option<NodeStanding>, StoreError> {
        let reports = self.scheduler.reports();
        let standing = reports.standing(&self.store, node, self.clock.now_ms()).await?;
        let Some(standing) = standing else { return Ok(None) };
        Ok(Some(NodeStanding { device: self.store.device_of_node(node).await?, ..standing }))
    }

    /// The last lines of a VM's serial console, `text/plain`.
    pub async fn serial(&self, node: i64, vm: Uuid, tail: u32) -> Result<NodeStream, NodeCallError> {
        let query = format!("tail={tail}");
        self.stream(node, &[paths::VMS, &format!("/{vm}/serial")].concat(), &query).await
    }

    /// What a running guest tells about its machine.
    pub async fn stats(&self, node: i64, vm: Uuid) -> Result<GuestStats, NodeCallError> {
        self.call(node, Method::GET, &format!("{}/{vm}/stats", paths::VMS), |request| request).await
    }

    /// How a VM is connected.
    pub async fn network(&self, node: i64, vm: Uuid) -> Result<VmNetwork, NodeCallError> {
        self.call(node, Method::GET, &format!("{}/{vm}/network", paths::VMS), |request| request).await
    }

    /// Puts a VM that was drained into service again; one that is off stays off.
    pub(crate) async fn end_drain(&self, node: i64, vm: Uuid) -> Result<VmReport, NodeCallError> {
        self.call(node, Method::DELETE, &format!("{}/{vm}/drain", paths::VMS), |request| request).await
    }

    /// The containers of a running guest, the guest agent's JSON document.
    pub async fn containers(&self, node: i64, vm: Uuid) -> Result<serde_json::Value, NodeCallError> {
        self.call(node, Method::GET, &format!("{}/{vm}/containers", paths::VMS), |request| request).await
    }

    /// The evidence of a running guest over a challenge, as its agent presents it; agents take no more than
    /// these 32 bytes from outside.
    pub async fn attestation(
        &self,
        node: i64,
        vm: Uuid,
        challenge: [u8; 32],
    ) -> Result<AttestationDocument, NodeCallError> {
        let path = format!("{}/{vm}/attestation", paths::VMS);
        let report_data = hex::encode(challenge);
        self.call(node, Method::GET, &path, |request| request.query(&[("report_data", report_data)])).await
    }

    /// A container's log; the query is passed on to the guest agent.
    pub async fn container_log(
        &self,
        node: i64,
        vm: Uuid,
        container: &str,
        query: &str,
    ) -> Result<NodeStream, NodeCallError> {
        self.stream(node, &format!("{}/{vm}/logs/{container}", paths::VMS), query).await
    }

    /// Streams an image archive to a node's store for one workspace.
    pub async fn import_image<S>(
        &self,
        node: i64,
        workspace_id: i64,
        reference: &str,
        archive: S,
    ) -> Result<ImportedImage, NodeCallError>
    where
        S: Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static,
    {
        let path = format!("{}/{workspace_id}/images", paths::WORKSPACES);
        let line = self.line(node, &path).await?;
        let request = line
            .http
            .put(line.url)
            .query(&[("reference", reference)])
            .body(reqwest::Body::wrap_stream(archive));
        decode(send(request, &line.name).await?, &line.name).await
    }

    /// The images that a workspace pushed to a node.
    pub async fn images(&self, node: i64, workspace_id: i64) -> Result<Vec<ImportedImage>, NodeCallError> {
        let path = format!("{}/{workspace_id}/images", paths::WORKSPACES);
        self.call(node, Method::GET, &path, |request| request).await
    }

    async fn stream(&self, node: i64, path: &str, query: &str) -> Result<NodeStream, NodeCallError> {
        let mut line = self.line(node, path).await?;
        line.url.set_query(Some(query).filter(|query| !query.is_empty()));
        let response = send(line.http.get(line.url), &line.name).await?;
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("text/plain; charset=utf-8")
            .to_owned();
        Ok(NodeStream { content_type, body: Box::pin(response.bytes_stream()) })
    }

    async fn call<T: DeserializeOwned>(
        &self,
        node: i64,
        method: Method,
        path: &str,
        fill: impl FnOnce(RequestBuilder) -> RequestBuilder + Send,
    ) -> Result<T, NodeCallError> {
        let line = self.line(node, path).await?;
        let request = fill(line.http.request(method, line.url).timeout(CALL_TIMEOUT));
        decode(send(request, &line.name).await?, &line.name).await
    }

    /// How to reach a path of a node.
    async fn line(&self, node: i64, path: &str) -> Result<Line, NodeCallError> {
        let row = match self.store.node(node).await {
            Ok(Some(row)) => row,
            Ok(None) => return Err(NodeCallError::NodeGone),
            Err(error) => {
                debug!(%error, node, "cannot look a node up");
                return Err(NodeCallError::Unreachable { node: node.to_string() });
            }
        };
        let standing = NodeStanding::of(&row, self.clock.now_ms());
        let unreachable = || NodeCallError::Unreachable { node: row.name.clone() };
        let endpoint = standing.report.ok_or_else(unreachable)?.endpoint.clone();
        let mut url = Url::parse(&format!("https://{endpoint}")).map_err(|_| unreachable())?;
        url.set_path(path);
        let http = self.client(&row.name).map_err(|error| {
            error!(node = row.name, error = &error as &dyn std::error::Error, "cannot call a node");
            unreachable()
        })?;
        Ok(Line { http, url, name: row.name })
    }
}

/// How to reach a path of a node.
struct Line {
    http: Client,
    url: Url,
    /// Name of the node.
    name: String,
}

/// Why the client of a node could not be made.
#[derive(Debug, thiserror::Error)]
enum ClientError {
    /// The credentials cannot be used.
    #[error(transparent)]
    Tls(#[from] FleetTlsError),
    /// The HTTP client refused its configuration.
    #[error("the HTTP client cannot be built")]
    Http(#[from] reqwest::Error),
}

async fn send(request: RequestBuilder, node: &str) -> Result<Response, NodeCallError> {
    let response = request.send().await.map_err(|error| unreachable(node, &error))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let body = read(response, MAX_ERROR_BYTES).await.unwrap_or_default();
    Err(NodeCallError::Refused(serde_json::from_slice(&body).unwrap_or_else(|_| NodeError {
        code: NodeErrorCode::Internal,
        message: format!("node {node} answered with status {status}"),
    })))
}

async fn decode<T: DeserializeOwned>(response: Response, node: &str) -> Result<T, NodeCallError> {
    let body = read(response, MAX_ANSWER_BYTES).await.map_err(|error| unreachable(node, &error))?;
    serde_json::from_slice(&body).map_err(|error| {
        debug!(node, %error, "a node's answer cannot be read");
        NodeCallError::Refused(NodeError {
            code: NodeErrorCode::Internal,
            message: format!("node {node} answered with something that cannot be read"),
        })
    })
}

/// A body, cut after `limit` bytes: nodes may be hostile, and what guests say passes through them.
async fn read(response: Response, limit: usize) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk?);
        if body.len() >= limit {
            body.truncate(limit);
            break;
        }
    }
    Ok(body)
}

fn unreachable(node: &str, error: &reqwest::Error) -> NodeCallError {
    debug!(node, error = error as &dyn std::error::Error, "a call to a node failed");
    NodeCallError::Unreachable { node: node.to_owned() }
}

impl Nodes for Fleet {
    async fn prepare(&self, node: i64, spec: &VmSpec) -> Result<VmReport, NodeCallError> {
        let path = format!("{}/{}", paths::VMS, spec.vm_uuid);
        self.call(node, Method::PUT, &path, |request| request.json(spec)).await
    }

    async fn start(&self, node: i64, vm: Uuid) -> Result<VmReport, NodeCallError> {
        self.call(node, Method::POST, &format!("{}/{vm}/start", paths::VMS), |request| request).await
    }

    async fn drain(&self, node: i64, vm: Uuid, request: DrainRequest) -> Result<VmReport, NodeCallError> {
        let path = format!("{}/{vm}/drain", paths::VMS);
        self.call(node, Method::POST, &path, |call| call.json(&request)).await
    }

    async fn shutdown(
        &self,
        node: i64,
        vm: Uuid,
        request: ShutdownRequest,
    ) -> Result<VmReport, NodeCallError> {
        let path = format!("{}/{vm}/shutdown", paths::VMS);
        self.call(node, Method::POST, &path, |call| call.json(&request)).await
    }

    async fn stop(&self, node: i64, vm: Uuid) -> Result<VmReport, NodeCallError> {
        self.call(node, Method::POST, &format!("{}/{vm}/stop", paths::VMS), |request| request).await
    }

    async fn look(&self, node: i64, vm: Uuid) -> Result<VmReport, NodeCallError> {
        self.call(node, Method::GET, &format!("{}/{vm}", paths::VMS), |request| request).await
    }

    async fn remove(&self, node: i64, vm: Uuid) -> Result<(), NodeCallError> {
        let line = self.line(node, &format!("{}/{vm}", paths::VMS)).await?;
        send(line.http.delete(line.url).timeout(CALL_TIMEOUT), &line.name).await.map(|_| ())
    }

    fn changed(&self, vm: Uuid) -> impl Future<Output = ()> + Send {
        self.changes.changed(vm)
    }
}
