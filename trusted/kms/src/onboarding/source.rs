//! The KMS whose roots are taken.
//!
//! Its evidence is verified in the handshake, and the roots come over that same connection: there is no
//! other one that somebody else could answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cloister_kms_api::log::Event;
use cloister_kms_api::{
    Hex, KmsError, KmsErrorCode, KmsKeyRequest, KmsKeyResponse, MachineResponse, OnboardRequest,
    OnboardResponse, method,
};
use cloister_ra_tls::{
    AttestedKey, Connected, Connector, HandshakeError, PeerIdentity, PeerPolicy, PeerVerifier, RaTlsError,
    Subject, client_config,
};
use cloister_verifier::{Policy, TcbStatus};
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use url::{Host, Url};
use zeroize::Zeroizing;

use super::domain::Domain;
use super::machine::{Machine, MachineError};
use super::{Onboarding, failed};
use crate::policy::{BootInfo, Form, Question};
use crate::release::named_image;
use crate::state::{InvalidRoots, Keys, NewState, check_roots};

/// Longest answer of the other KMS, in bytes: roots are short, but any number of applications may have owners.
const MAX_ANSWER_BYTES: usize = 64 << 20;
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// How long our certificate holds: for one connection, with clocks that differ.
const CERTIFICATE_LIFE: SignedDuration = SignedDuration::from_hours(1);

/// Where the roots come from.
pub(super) struct Source {
    url: String,
    host: String,
    port: u16,
    name: ServerName<'static>,
    k256_pubkey: Option<Hex>,
}

/// The request names no KMS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSource {
    #[error("source_url must be https://host:port of the port where the other KMS releases keys")]
    Url,
    #[error("k256_pubkey must be a compressed secp256k1 key: 33 bytes in hex")]
    Key,
}

/// Why the other KMS gave nothing.
#[derive(Debug, thiserror::Error)]
enum SourceError {
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("this machine's certificate cannot be made")]
    Certificate(#[from] RaTlsError),
    #[error("the other KMS cannot be reached")]
    Connect(#[source] std::io::Error),
    #[error("the other KMS did not answer in time")]
    TimedOut,
    #[error("no connection with the other KMS")]
    Handshake(#[from] HandshakeError),
    #[error("the connection with the other KMS broke")]
    Http(#[from] hyper::Error),
    #[error("the other KMS refused: {0}")]
    Refused(KmsError),
    #[error("the other KMS gave an answer that cannot be understood or is too long")]
    Answer,
    #[error("the roots of the other KMS cannot be used")]
    Roots(#[from] InvalidRoots),
    #[error("the current root of the other KMS is {0:?}, not the expected one")]
    OtherRoot(Hex),
}

impl Source {
    pub(super) fn new(request: &OnboardRequest) -> Result<Self, InvalidSource> {
        let url = Url::parse(&request.source_url).map_err(|_| InvalidSource::Url)?;
        let sound = url.scheme() == "https"
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        let host = url.host().filter(|_| sound).ok_or(InvalidSource::Url)?;
        let (text, name) = match host {
            Host::Domain(name) => (name.to_owned(), ServerName::try_from(name.to_owned()).ok()),
            Host::Ipv4(address) => {
                (address.to_string(), Some(ServerName::from(std::net::IpAddr::V4(address))))
            }
            Host::Ipv6(address) => {
                (address.to_string(), Some(ServerName::from(std::net::IpAddr::V6(address))))
            }
        };
        if request.k256_pubkey.as_ref().is_some_and(|key| key.as_ref().len() != 33) {
            return Err(InvalidSource::Key);
        }
        Ok(Self {
            host: text,
            port: url.port().unwrap_or(cloister_kms_api::DEFAULT_PORT),
            name: name.ok_or(InvalidSource::Url)?,
            url: request.source_url.clone(),
            k256_pubkey: request.k256_pubkey.clone(),
        })
    }
}

impl Onboarding {
    /// Fetches the roots, checks them, and makes them ours in one durable step.
    pub(super) async fn take_roots(
        &self,
        domain: &Domain,
        source: &Source,
    ) -> Result<(Keys, OnboardResponse), KmsError> {
        let (connected, machine) = self.connect(source).await.map_err(|error| refused(&error))?;
        let peer = Arc::clone(&connected.peer);
        let mut talk = Talk::begin(connected).await.map_err(|error| refused(&error))?;
        let described = talk.machine().await.map_err(|error| refused(&error))?;
        self.judge(&peer, &described, source, &machine).await?;
        let asked = KmsKeyRequest { vm_config: machine.evidence.vm_config.clone() };
        let answer = talk.ask(method::KMS_KEY, &asked).await.map_err(|error| refused(&error))?;
        let current = current_root(&answer, source).map_err(|error| refused(&error))?;
        let new = NewState {
            domain: domain.to_string(),
            roots: answer.roots,
            bootstrap: None,
            policy: (*self.rules).clone(),
            owned: answer.owned_apps,
            origin: Event::Onboarded {
                k256_pubkey: current.clone(),
                domain: domain.to_string(),
                source_url: source.url.clone(),
            },
        };
        let keys = self.create(new, "onboard").await?;
        Ok((keys, OnboardResponse { k256_pubkey: current }))
    }

    async fn connect(&self, source: &Source) -> Result<(Connected<TcpStream>, Machine), SourceError> {
        let key = AttestedKey::generate()?;
        let machine = Machine::prove(&self.agent, &self.verifier, &key.report_data()).await?;
        let now = self.clock.now();
        let at = |time: Result<Timestamp, jiff::Error>| time.unwrap_or(now);
        let subject = Subject::new(
            "Cloister KMS",
            Vec::new(),
            at(now.checked_sub(CERTIFICATE_LIFE)),
            at(now.checked_add(CERTIFICATE_LIFE)),
        );
        let certificate =
            key.certificate(&machine.evidence.clone().into_certificate_form(), &subject, None)?;
        // Which status is good enough, the policy says.
        let any = Policy { accepted_tcb: TcbStatus::ALL.into_iter().collect(), ..Policy::default() };
        let servers = PeerVerifier::new(self.verifier.clone(), PeerPolicy::any_app(any));
        let connector = Connector::new(client_config(&servers, Some((&key, &certificate)))?, &servers);
        let stream = timeout(CONNECT_LIMIT, TcpStream::connect((source.host.as_str(), source.port)))
            .await
            .map_err(|_| SourceError::TimedOut)?
            .map_err(SourceError::Connect)?;
        Ok((connector.connect(source.name.clone(), stream).await?, machine))
    }

    /// Whether roots of this KMS may become ours. Its platform must be accepted in any case. What it
    /// measured must be registered, or be the same as ours; who names the root that he expects has decided
    /// by himself. Its image is the one that its registers say, of which it told the documents.
    async fn judge(
        &self,
        peer: &PeerIdentity,
        described: &MachineResponse,
        source: &Source,
        own: &Machine,
    ) -> Result<(), KmsError> {
        let os_image_hash = named_image(&peer.registers, &described.vm_config)?;
        let boot = BootInfo::of_peer(peer, os_image_hash, Form::Full);
        match self.authority.ask(&self.rules, Question::Kms, &boot).await {
            Ok(_) => Ok(()),
            Err(error)
                if error.code == KmsErrorCode::MeasurementNotFound
                    && self.authority.is_built_in()
                    && (source.k256_pubkey.is_some() || boot.mr_aggregated == own.mr_aggregated) =>
            {
                Ok(())
            }
            Err(error) => {
                Err(KmsError::new(error.code, format!("the other KMS is not accepted: {}", error.error)))
            }
        }
    }
}

/// Calls over the one connection whose other side was verified.
struct Talk {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Talk {
    async fn begin(connected: Connected<TcpStream>) -> Result<Self, SourceError> {
        let (sender, connection) = http1::handshake(TokioIo::new(connected.stream)).await?;
        Ok(Self { sender, connection: tokio::spawn(connection) })
    }

    /// Which machine the other KMS is, by its own words. An older one has none to say: then it names no image.
    async fn machine(&mut self) -> Result<MachineResponse, SourceError> {
        match self.ask(method::MACHINE, &serde_json::Map::new()).await {
            Err(SourceError::Refused(said)) if said.code == KmsErrorCode::BadRequest => {
                Ok(MachineResponse::default())
            }
            answer => answer,
        }
    }

    async fn ask<A: DeserializeOwned>(
        &mut self,
        method: &str,
        asked: &impl Serialize,
    ) -> Result<A, SourceError> {
        let body = serde_json::to_vec(asked).map_err(|_| SourceError::Answer)?;
        timeout(ANSWER_LIMIT, self.exchange(method, body)).await.map_err(|_| SourceError::TimedOut)?
    }

    async fn exchange<A: DeserializeOwned>(&mut self, method: &str, body: Vec<u8>) -> Result<A, SourceError> {
        self.sender.ready().await?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{method}?json"))
            .header(HOST, "kms")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| SourceError::Answer)?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = Zeroizing::new(body.map_err(|_| SourceError::Answer)?.to_bytes().to_vec());
        if status != StatusCode::OK {
            let said = serde_json::from_slice(&body).map_err(|_| SourceError::Answer)?;
            return Err(SourceError::Refused(said));
        }
        serde_json::from_slice(&body).map_err(|_| SourceError::Answer)
    }
}

/// The current root, after all of them were checked.
fn current_root(answer: &KmsKeyResponse, source: &Source) -> Result<Hex, SourceError> {
    check_roots(&answer.roots)?;
    let current = answer.roots.last().ok_or(InvalidRoots::Versions)?.info.k256_pubkey.clone();
    match &source.k256_pubkey {
        Some(expected) if *expected != current => Err(SourceError::OtherRoot(current)),
        _ => Ok(current),
    }
}

/// A bad source is not our failure.
fn refused(error: &SourceError) -> KmsError {
    let answer = failed(error);
    match error {
        SourceError::Handshake(HandshakeError::Peer(peer)) if !peer.is_temporary() => {
            KmsError::new(KmsErrorCode::Unauthorized, answer.error)
        }
        SourceError::Refused(said) => KmsError::new(said.code, answer.error),
        SourceError::OtherRoot(_) | SourceError::Roots(_) => {
            KmsError::new(KmsErrorCode::Unauthorized, answer.error)
        }
        _ => answer,
    }
}
