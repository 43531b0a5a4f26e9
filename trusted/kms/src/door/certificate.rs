//! The KMS's own certificate: its evidence, issued by the current root, with all roots above it.

use std::sync::Arc;
use std::time::Duration;

use cloister_evidence::InvalidEventLog;
use cloister_ra_tls::{
    Acceptor, AttestedKey, CertificateIssuer, Clients, JudgingAcceptor, KMS_USAGE, MAX_SERVER_CHAIN,
    PeerVerifier, RaTlsError, Subject, server_config,
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::metrics::Metrics;
use crate::state::{Keys, Snapshot};
use cloister_agent_client::{Agent, AgentError};

/// How long a certificate holds.
const VALIDITY: SignedDuration = SignedDuration::from_hours(24 * 7);
/// How far the clock of a caller may be behind.
const SKEW: SignedDuration = SignedDuration::from_hours(24);
/// After this time there is a new one, with new evidence.
const RENEWAL: Duration = Duration::from_hours(24);
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(30);
/// Longest common name (X.520).
const MAX_COMMON_NAME: usize = 64;
/// HTTP/2 first.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum OwnCertificateError {
    /// No evidence.
    #[error("the guest agent gives no evidence for the KMS's own certificate")]
    Agent(#[from] AgentError),
    /// Evidence that cannot be used.
    #[error("the evidence for the KMS's own certificate cannot be used")]
    Evidence(#[from] InvalidEventLog),
    /// No certificate.
    #[error("the KMS's own certificate cannot be made")]
    Certificate(#[from] RaTlsError),
    /// A root that cannot sign; practically impossible.
    #[error("the current root cannot sign the KMS's own certificate")]
    Root(#[from] cloister_key_derivation::InvalidKey),
}

/// The two listeners' TLS, under one root.
pub(crate) struct ServerTls {
    /// For callers with evidence.
    pub(crate) release: JudgingAcceptor,
    /// For callers without a name.
    pub(crate) directory: Acceptor,
    /// The description of the machine, which the certificate's evidence proves.
    pub(crate) vm_config: String,
    /// Version of the root that issued it.
    root_version: u32,
}

/// Makes certificates.
pub(crate) struct Certifier {
    pub(crate) keys: Keys,
    pub(crate) agent: Agent,
    pub(crate) peers: PeerVerifier,
}

impl Certifier {
    /// A fresh key and a certificate for it.
    pub(crate) async fn certify(&self) -> Result<ServerTls, OwnCertificateError> {
        let key = AttestedKey::generate()?;
        let own = self.agent.quote(&key.report_data()).await?;
        cloister_evidence::EventLog::parse(&own.event_log)?;
        let vm_config = own.vm_config.clone();
        let evidence = own.into_certificate_form();
        let snapshot = self.keys.snapshot();
        // Of very many roots the newest: the others do not fit into a handshake.
        let roots = snapshot.roots.iter().rev().take(MAX_SERVER_CHAIN.saturating_sub(1));
        let issuer = CertificateIssuer::from_pem_and_der(
            &roots.map(|root| root.certificate.as_str()).collect::<String>(),
            &snapshot.current.secrets.ca_key_pkcs8()?,
        )?;
        let certificate = key.certificate(&evidence, &subject(&snapshot, self.keys.now()), Some(&issuer))?;
        let mut anonymous = server_config(&key, &certificate, &Clients::Anonymous)?;
        anonymous.alpn_protocols = PROTOCOLS.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(ServerTls {
            release: JudgingAcceptor::new(&key, &certificate, &PROTOCOLS, self.peers.clone())?,
            directory: Acceptor::new(anonymous, &Clients::Anonymous),
            vm_config,
            root_version: snapshot.current.version(),
        })
    }

    /// Makes a new one whenever the root changes, and once a day. Connections that are open go on.
    pub(crate) async fn keep_up(
        self,
        tls: watch::Sender<Arc<ServerTls>>,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) {
        let mut changes = self.keys.subscribe();
        let mut due = tokio::time::Instant::now() + RENEWAL;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(due) => {}
                rotated = changes.changed() => {
                    if rotated.is_err() {
                        return;
                    }
                    let current = changes.borrow_and_update().current.version();
                    if current == tls.borrow().root_version {
                        continue;
                    }
                }
            }
            let made = self.certify().await;
            metrics.certificate_is_stale(made.is_err());
            due = tokio::time::Instant::now() + if made.is_ok() { RENEWAL } else { RETRY };
            match made {
                Ok(made) => {
                    info!(root_version = made.root_version, "the KMS's own certificate was renewed");
                    tls.send_replace(Arc::new(made));
                }
                Err(error) => {
                    warn!(error = %super::chain(&error), "the KMS's own certificate could not be renewed");
                }
            }
        }
    }
}

fn subject(snapshot: &Snapshot, now: Timestamp) -> Subject {
    let name = match snapshot.domain.as_str() {
        domain if domain.len() <= MAX_COMMON_NAME => domain,
        _ => "Cloister KMS",
    };
    let not_before = now.saturating_sub(SKEW).unwrap_or(now);
    let not_after = now.saturating_add(VALIDITY).unwrap_or(now);
    Subject {
        usage: Some(KMS_USAGE.to_owned()),
        client: false,
        ..Subject::new(name, vec![snapshot.domain.clone()], not_before, not_after)
    }
}
