//! Clients of a server that is known by the authority which issued its certificate, such as a KMS. They
//! hold no verifier of evidence: whoever has the root's key is believed, and the root is pinned or told to
//! whoever asks later.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as ring_provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client};
use webpki::ring::ECDSA_P256_SHA256;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;

use super::configs::provider;
use super::streams::{HandshakeError, limited};
use super::verifiers::no_tls12;
use crate::inspect::{parse, usage};
use crate::peer::MAX_SERVER_CHAIN;
use crate::{AttestedCertificate, AttestedKey, InvalidCertificate, RaTlsError};

/// What a KMS's server certificate is for, in its extension of our arc.
pub const KMS_USAGE: &str = "kms:rpc";

/// Which authority's server is talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityPolicy {
    /// What the server's certificate must be for, as its issuer says, such as [`KMS_USAGE`].
    pub usage: String,
    /// `SubjectPublicKeyInfo` (DER) of a root that must stand in the chain which the server shows, with
    /// everything below signed by it; any complete chain will do when absent. Then the caller must show or
    /// measure the root that it met ([`Authority::root_public_key`]), because anybody can make one.
    pub root: Option<Vec<u8>>,
}

impl AuthorityPolicy {
    /// The release and directory ports of a KMS.
    #[must_use]
    pub fn kms(root: Option<Vec<u8>>) -> Self {
        Self { usage: KMS_USAGE.to_owned(), root }
    }
}

/// `SubjectPublicKeyInfo` (DER) of the first certificate of a PEM text, to pin a root by its certificate.
pub fn public_key_of_pem(certificate: &str) -> Result<Vec<u8>, InvalidCertificate> {
    let der =
        CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| InvalidCertificate::Malformed)?;
    public_key_of(&der)
}

/// `SubjectPublicKeyInfo` (DER) of a certificate (DER).
pub fn public_key_of(certificate: &[u8]) -> Result<Vec<u8>, InvalidCertificate> {
    Ok(parse(certificate)?.public_key().raw.to_vec())
}

/// Why a server is not of the authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It showed a leaf without an authority above it, or too many.
    #[error("the server shows {0} certificates; a server of an authority shows 2 to {MAX_SERVER_CHAIN}")]
    Length(usize),
    /// One of its certificates cannot be read.
    #[error(transparent)]
    Certificate(#[from] InvalidCertificate),
    /// The leaf does not hold under the authority: dates, signature, purpose.
    #[error("the server's certificate does not hold: {0}")]
    Leaf(webpki::Error),
    /// The leaf is for something else.
    #[error("the server's certificate is not for {0}")]
    Usage(String),
    /// One of the authorities is none, has expired, or was not signed by the next one; counted from 1, which
    /// is the current one.
    #[error("authority {0} of the server's chain {1}")]
    Root(usize, &'static str),
    /// The pinned root is not there.
    #[error("no authority of the server's chain has the key that is expected")]
    OtherRoot,
}

/// An authority whose server was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    roots: Vec<CertificateDer<'static>>,
    root_public_key: Vec<u8>,
}

impl Authority {
    /// The authorities that the server showed, DER: the current one first, then those before it. With a
    /// pinned root, they end there.
    #[must_use]
    pub fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    /// `SubjectPublicKeyInfo` of the current root, DER.
    #[must_use]
    pub fn root_public_key(&self) -> &[u8] {
        &self.root_public_key
    }
}

/// TLS 1.3 client that talks only to servers of the authority that `policy` names, and shows `own`
/// certificate if it has one and is asked. Host names are not compared: a server is who its issuer says.
/// Evidence of the server is not looked at: the holder of the root releases its key to verified code only,
/// and the client takes it at its word. Dates are compared with `now`. Without session resumption.
pub fn authority_client_config(
    policy: AuthorityPolicy,
    own: Option<(&AttestedKey, &AttestedCertificate)>,
    now: impl Fn() -> Timestamp + Send + Sync + 'static,
) -> Result<ClientConfig, RaTlsError> {
    let verifier = OfAuthority { policy, now: Box::new(now), provider: provider() };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match own {
        Some((key, certificate)) => {
            builder.with_client_auth_cert(certificate.chain().to_vec(), key.private_key_der())?
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Connects to servers of an authority; cheap to clone. The chain is verified within the handshake, on the
/// runtime: that is some signatures, and waits for nothing.
#[derive(Clone)]
pub struct AuthorityConnector {
    config: Arc<ClientConfig>,
    policy: AuthorityPolicy,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl AuthorityConnector {
    /// As [`authority_client_config`], for these protocols of ALPN (none: it is not spoken).
    pub fn new(
        policy: AuthorityPolicy,
        own: Option<(&AttestedKey, &AttestedCertificate)>,
        alpn: &[&str],
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Result<Self, RaTlsError> {
        let now: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(now);
        let clock = Arc::clone(&now);
        let mut config = authority_client_config(policy.clone(), own, move || clock())?;
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Ok(Self { config: Arc::new(config), policy, now })
    }

    /// Shakes hands, within 20 seconds, and says whose server it is.
    pub async fn connect<S>(
        &self,
        name: ServerName<'static>,
        stream: S,
    ) -> Result<(client::TlsStream<S>, Authority), AuthorityHandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let handshake = async { Ok::<_, HandshakeError>(connector.connect(name, stream).await) };
        let stream = limited(Box::pin(handshake)).await?.map_err(refusal)?;
        let (_, connection) = stream.get_ref();
        let chain = connection.peer_certificates().unwrap_or_default();
        let authority = judge(&self.policy, chain, (self.now)()).map_err(Arc::new)?;
        Ok((stream, authority))
    }
}

/// Why a connection to an authority's server did not come about.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityHandshakeError {
    /// It is not a server of the authority.
    #[error("the server is refused")]
    Server(#[from] Arc<AuthorityError>),
    /// The connection did not come about.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// The reason of our own inside an error of the library, if there is one.
fn refusal(error: std::io::Error) -> AuthorityHandshakeError {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidCertificate(CertificateError::Other(OtherError(ours)))) => {
            match ours.downcast_ref::<Arc<AuthorityError>>() {
                Some(reason) => AuthorityHandshakeError::Server(Arc::clone(reason)),
                None => HandshakeError::Io(error).into(),
            }
        }
        Some(tls) => HandshakeError::Tls(tls.clone()).into(),
        None => HandshakeError::Io(error).into(),
    }
}

/// Judges a chain, leaf first.
fn judge(
    policy: &AuthorityPolicy,
    chain: &[CertificateDer<'_>],
    now: Timestamp,
) -> Result<Authority, AuthorityError> {
    let (leaf, roots) = match chain {
        [leaf, roots @ ..] if !roots.is_empty() && chain.len() <= MAX_SERVER_CHAIN => (leaf, roots),
        _ => return Err(AuthorityError::Length(chain.len())),
    };
    let parsed: Vec<_> = roots.iter().map(|root| parse(root)).collect::<Result<_, _>>()?;
    let anchor = match &policy.root {
        Some(key) => parsed
            .iter()
            .position(|root| root.public_key().raw == key.as_slice())
            .ok_or(AuthorityError::OtherRoot)?,
        None => parsed.len().saturating_sub(1),
    };
    for (index, (root, der)) in parsed.iter().zip(roots).enumerate().take(anchor.saturating_add(1)) {
        let number = index.saturating_add(1);
        check_authority(root, index).map_err(|what| AuthorityError::Root(number, what))?;
        // Of the last one that counts, only the key does: it is pinned, or it is told to whoever asks.
        let below = index.checked_sub(1).and_then(|below| parsed.get(below));
        if let Some(below) = below {
            check_signature(below, root, der, now).map_err(|what| AuthorityError::Root(index, what))?;
        }
    }
    let current = roots.first().ok_or(AuthorityError::Length(chain.len()))?;
    check_leaf(leaf, current, now)?;
    if usage(&parse(leaf)?)?.as_deref() != Some(policy.usage.as_str()) {
        return Err(AuthorityError::Usage(policy.usage.clone()));
    }
    let root_public_key = parsed.first().map(|root| root.public_key().raw.to_vec()).unwrap_or_default();
    let roots = roots.iter().take(anchor.saturating_add(1)).map(|root| root.clone().into_owned()).collect();
    Ok(Authority { roots, root_public_key })
}

/// Whether a certificate is an authority above so many others.
fn check_authority(root: &X509Certificate<'_>, below: usize) -> Result<(), &'static str> {
    let Ok(Some(constraints)) = root.basic_constraints() else { return Err("is no authority") };
    // Authorities of single applications stand below roots, and are none.
    if !usage(root).is_ok_and(|usage| usage.is_none()) {
        return Err("is the authority of something else");
    }
    let deep = constraints
        .value
        .path_len_constraint
        .is_some_and(|most| usize::try_from(most).is_ok_and(|most| most < below));
    match (constraints.value.ca, deep) {
        (true, false) => Ok(()),
        (true, true) => Err("may not have so many others below it"),
        (false, _) => Err("is no authority"),
    }
}

fn check_signature(
    root: &X509Certificate<'_>,
    parent: &X509Certificate<'_>,
    parent_der: &CertificateDer<'_>,
    now: Timestamp,
) -> Result<(), &'static str> {
    let validity = root.validity();
    if !(validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now.as_second()) {
        return Err("is not valid at this time");
    }
    if root.issuer().as_raw() != parent.subject().as_raw() {
        return Err("names another issuer than the next one");
    }
    EndEntityCert::try_from(parent_der)
        .and_then(|parent| {
            parent.verify_signature(
                ECDSA_P256_SHA256,
                root.tbs_certificate.as_ref(),
                &root.signature_value.data,
            )
        })
        .map_err(|_| "was not signed by the next one")
}

/// Checks dates, signature and purpose of the leaf below the current root.
fn check_leaf(
    leaf: &CertificateDer<'_>,
    current: &CertificateDer<'_>,
    now: Timestamp,
) -> Result<(), AuthorityError> {
    let anchors = [anchor_from_trusted_cert(current).map_err(AuthorityError::Leaf)?];
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let end = EndEntityCert::try_from(leaf).map_err(AuthorityError::Leaf)?;
    end.verify_for_usage(
        ring_provider::default_provider().signature_verification_algorithms.all,
        &anchors,
        &[],
        UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
        KeyUsage::server_auth(),
        None,
        None,
    )
    .map(drop)
    .map_err(AuthorityError::Leaf)
}

struct OfAuthority {
    policy: AuthorityPolicy,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OfAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain: Vec<_> = std::iter::once(end_entity).chain(intermediates).cloned().collect();
        judge(&self.policy, &chain, (self.now)())
            .map(|_| ServerCertVerified::assertion())
            .map_err(|error| CertificateError::Other(OtherError(Arc::new(Arc::new(error)))).into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Debug for OfAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfAuthority").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl fmt::Debug for AuthorityConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityConnector").field("policy", &self.policy).finish_non_exhaustive()
    }
}
