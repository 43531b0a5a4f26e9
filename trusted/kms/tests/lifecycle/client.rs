//! Callers of a KMS.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use cloister_kms_api::admin::{AllowApp, PolicyDocument, RotationStatus};
use cloister_kms_api::log::{Event, Record, Records};
use cloister_kms_api::{KmsError, Meta, admin, method};
use cloister_ra_tls::{AuthorityConnector, AuthorityPolicy};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::lab::{TOKEN, now};

/// What came back: status and body, or nothing, when the connection broke.
pub(crate) type Reply = Option<(StatusCode, Vec<u8>)>;

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Reply {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "kms")
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let answer = sender.send_request(request).await.ok()?;
    let status = answer.status();
    let body = answer.into_body().collect().await.ok()?.to_bytes().to_vec();
    connection.abort();
    Some((status, body))
}

/// Asks over plain HTTP.
pub(crate) async fn plain(address: SocketAddr, method: Method, path: &str, body: &str) -> Reply {
    let stream = TcpStream::connect(address).await.ok()?;
    exchange(stream, method, path, body.into()).await
}

/// Asks the directory, whose certificate must lead to a root.
pub(crate) async fn directory(address: SocketAddr, method: Method, path: &str, body: Vec<u8>) -> Reply {
    let connector = AuthorityConnector::new(AuthorityPolicy::kms(None), None, &["http/1.1"], now).unwrap();
    let stream = TcpStream::connect(address).await.ok()?;
    let name = ServerName::try_from("kms").unwrap();
    let connecting = timeout(Duration::from_secs(5), connector.connect(name, stream));
    let (stream, _) = connecting.await.ok()?.ok()?;
    exchange(stream, method, path, body).await
}

pub(crate) fn parse<T: DeserializeOwned>(reply: Reply) -> Result<T, KmsError> {
    let (status, body) = reply.expect("an answer");
    if status == StatusCode::OK {
        Ok(serde_json::from_slice(&body).unwrap())
    } else {
        let error: KmsError = serde_json::from_slice(&body).unwrap();
        assert_eq!(error.code.http_status(), status.as_u16());
        Err(error)
    }
}

pub(crate) async fn post<T: DeserializeOwned>(
    address: SocketAddr,
    path: &str,
    body: &impl Serialize,
) -> Result<T, KmsError> {
    parse(plain(address, Method::POST, &format!("{path}?json"), &serde_json::to_string(body).unwrap()).await)
}

pub(crate) async fn bootstrap(address: SocketAddr) -> Reply {
    plain(address, Method::POST, "/prpc/Onboard.Bootstrap?json", r#"{"domain":"127.0.0.1"}"#).await
}

pub(crate) async fn finish(address: SocketAddr) -> Reply {
    plain(address, Method::GET, method::FINISH, "").await
}

/// A KMS whose doors are open, or are about to.
pub(crate) struct Directory(pub(crate) SocketAddr);

impl Directory {
    /// Waits until the doors are open.
    pub(crate) async fn meta(&self) -> Meta {
        for _ in 0..20 {
            if let Some(reply) = directory(self.0, Method::POST, "/prpc/KMS.GetMeta?json", Vec::new()).await {
                return parse(Some(reply)).unwrap();
            }
        }
        panic!("the doors do not open");
    }

    pub(crate) async fn admin<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, KmsError> {
        parse(directory(self.0, Method::POST, path, serde_json::to_vec(body).unwrap()).await)
    }

    pub(crate) async fn rotation(&self) -> RotationStatus {
        self.admin(admin::ROTATION_STATUS, &()).await.unwrap()
    }

    pub(crate) async fn policy(&self) -> PolicyDocument {
        self.admin(admin::GET_POLICY, &()).await.unwrap()
    }

    /// What the log says.
    pub(crate) async fn events(&self) -> Vec<Event> {
        let path = "/log/records?start=0&limit=1000";
        let records: Records = parse(directory(self.0, Method::GET, path, Vec::new()).await).unwrap();
        records.records.iter().map(|record| serde_json::from_str::<Record>(record).unwrap().event).collect()
    }
}

pub(crate) fn an_app() -> AllowApp {
    AllowApp::new("11".repeat(20).parse().unwrap(), "22".repeat(32).parse().unwrap())
}
