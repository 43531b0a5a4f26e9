//! Calls to the control plane's node listener.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cloister_fleet_tls::{Identity, peer_identity};
use futures_util::TryStreamExt;
use http::request::Builder;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncRead;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::io::StreamReader;
use tokio_util::task::AbortOnDropHandle;

/// Longest time for a call, connection included.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// Why the control plane did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Its address is not `host:port`.
    #[error("the control plane's address must be host:port")]
    Address,
    /// It cannot be reached, or TLS does not trust it.
    #[error("the control plane cannot be reached")]
    Io(#[from] io::Error),
    /// It was too slow.
    #[error("the control plane did not answer in time")]
    TimedOut,
    /// Somebody of the same installation answers, and not as its control plane.
    #[error("the peer is not the control plane of this installation")]
    WrongPeer,
    /// It speaks no HTTP that this side understands.
    #[error("the control plane's answer cannot be read")]
    Http(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It refused; what it said.
    #[error("the control plane refused with status {status}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Beginning of its answer.
        message: String,
    },
}

impl CallError {
    fn http(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Http(error.into())
    }
}

/// The node listener of a control plane. Every call is a connection of its own: calls are rare, and none
/// meets a connection that died meanwhile.
#[derive(Clone)]
pub(crate) struct ControlPlaneClient {
    address: String,
    name: ServerName<'static>,
    tls: TlsConnector,
}

impl ControlPlaneClient {
    /// The control plane at `host:port`.
    pub(crate) fn new(address: String, tls: ClientConfig) -> Result<Self, CallError> {
        let (host, _) = address.rsplit_once(':').ok_or(CallError::Address)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|_| CallError::Address)?;
        Ok(Self { address, name, tls: TlsConnector::from(Arc::new(tls)) })
    }

    /// Posts a document and returns the answer's.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        document: &impl Serialize,
    ) -> Result<T, CallError> {
        let body = serde_json::to_vec(document).map_err(CallError::http)?;
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        self.call(request, body).await
    }

    /// Gets a document.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        self.call(Request::get(path), Vec::new()).await
    }

    async fn call<T: DeserializeOwned>(&self, request: Builder, body: Vec<u8>) -> Result<T, CallError> {
        tokio::time::timeout(LIMIT, self.exchange(request, body)).await.map_err(|_| CallError::TimedOut)?
    }

    /// Gets a stream of bytes, as long as it is; the caller bounds its pauses.
    pub(crate) async fn download(
        &self,
        path: &str,
    ) -> Result<impl AsyncRead + Send + Unpin + use<>, CallError> {
        let answer = tokio::time::timeout(LIMIT, self.send(Request::get(path), Vec::new())).await;
        let (response, connection) = answer.map_err(|_| CallError::TimedOut)??;
        if response.status() != StatusCode::OK {
            return Err(refusal(response).await);
        }
        let bytes = response.into_body().into_data_stream().map_err(move |error| {
            let _lives_as_long = &connection;
            io::Error::other(error)
        });
        Ok(StreamReader::new(bytes))
    }

    async fn exchange<T: DeserializeOwned>(&self, request: Builder, body: Vec<u8>) -> Result<T, CallError> {
        let (response, _connection) = self.send(request, body).await?;
        if response.status() != StatusCode::OK {
            return Err(refusal(response).await);
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        serde_json::from_slice(&body.map_err(CallError::http)?.to_bytes()).map_err(CallError::http)
    }

    /// Sends a request on a connection of its own, which lives as long as the handle.
    async fn send(
        &self,
        request: Builder,
        body: Vec<u8>,
    ) -> Result<(Response<Incoming>, AbortOnDropHandle<hyper::Result<()>>), CallError> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(self.name.clone(), stream).await?;
        // Nodes hold certificates of the same authority.
        if peer_identity(stream.get_ref().1.peer_certificates()) != Some(Identity::ControlPlane) {
            return Err(CallError::WrongPeer);
        }
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(CallError::http)?;
        let connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = request
            .header(header::HOST, &self.address)
            .body(Full::new(Bytes::from(body)))
            .map_err(CallError::http)?;
        let response = sender.send_request(request).await.map_err(CallError::http)?;
        Ok((response, connection))
    }
}

/// What the control plane said instead of an answer.
async fn refusal(response: Response<Incoming>) -> CallError {
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect();
    match tokio::time::timeout(LIMIT, body).await {
        Ok(Ok(body)) => {
            let text = body.to_bytes();
            let message =
                String::from_utf8_lossy(&text).chars().filter(|c| !c.is_control()).take(300).collect();
            CallError::Refused { status, message }
        }
        Ok(Err(error)) => CallError::Http(error),
        Err(_) => CallError::TimedOut,
    }
}
