//! Servers that are known by their authority, and servers that judge callers after the handshake.

use std::sync::Arc;

use cloister_verifier::Policy;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::handshakes::chain_of;
use super::lab::{APP, Holder, Lab, days, now, subject};
use crate::{
    AttestedCertificate, AttestedKey, Authority, AuthorityConnector, AuthorityPolicy, AuthoritySubject,
    CertificateIssuer, Evidence, JudgingAcceptor, KMS_USAGE, PeerError, PeerPolicy, PeerVerifier, Subject,
    authority_client_config, public_key_of_pem,
};

fn root(name: &str, above: Option<&CertificateIssuer>) -> CertificateIssuer {
    root_with(name, above, |_| {})
}

fn root_with(
    name: &str,
    above: Option<&CertificateIssuer>,
    change: impl FnOnce(&mut AuthoritySubject),
) -> CertificateIssuer {
    let mut subject = AuthoritySubject {
        organization: None,
        common_name: name.to_owned(),
        app_id: None,
        usage: None,
        path_length: None,
        not_before: now() - days(1),
        not_after: now() + days(1),
    };
    change(&mut subject);
    let key = rcgen::KeyPair::generate().unwrap().serialize_der();
    CertificateIssuer::authority(&key, &subject, above).unwrap()
}

fn pin(issuer: &CertificateIssuer) -> Vec<u8> {
    public_key_of_pem(&issuer.certificate_pem()).unwrap()
}

fn server(lab: &Lab, issuer: Option<&CertificateIssuer>, change: impl FnOnce(&mut Subject)) -> Holder {
    let key = AttestedKey::generate().unwrap();
    let mut subject = Subject { usage: Some(KMS_USAGE.to_owned()), ..subject() };
    change(&mut subject);
    let certificate = key.certificate(&lab.evidence(&key, APP), &subject, issuer).unwrap();
    Holder { key, certificate }
}

struct Met {
    client: Result<Authority, String>,
    server: Option<Result<(), PeerError>>,
}

/// A handshake of both modes with each other, and one byte from the server.
async fn meet(lab: &Lab, server: &Holder, policy: AuthorityPolicy, own: Option<&Holder>) -> Met {
    let peers = PeerVerifier::new(lab.verifier(), PeerPolicy::any_app(Policy::default()));
    let acceptor = JudgingAcceptor::new(&server.key, &server.certificate, &["h2"], peers).unwrap();
    let own = own.map(|own| (&own.key, &own.certificate));
    let connector = AuthorityConnector::new(policy, own, &["h2"], now).unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = async {
        let mut judged = acceptor.accept(listener.accept().await.unwrap().0).await.ok()?;
        judged.stream.write_all(b"!").await.ok()?;
        judged.stream.flush().await.ok()?;
        Some(judged.peer.map(drop))
    };
    let asking = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("kms.example").unwrap();
        let (mut stream, authority) =
            connector.connect(name, stream).await.map_err(|error| chain_of(&error))?;
        assert_eq!(stream.read_u8().await.unwrap(), b'!');
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        Ok(authority)
    };
    let (server, client) = tokio::join!(serving, asking);
    Met { client, server }
}

#[tokio::test]
async fn any_client_is_heard_and_judged() {
    let lab = Lab::new();
    let root = root("one", None);
    let server = server(&lab, Some(&root), |_| {});
    let known = lab.holder(2);
    let met = meet(&lab, &server, AuthorityPolicy::kms(None), Some(&known)).await;
    assert!(met.server.unwrap().is_ok());
    let met = meet(&lab, &server, AuthorityPolicy::kms(None), None).await;
    assert!(matches!(met.server, Some(Err(PeerError::NoCertificate))));
    let other = AttestedKey::generate().unwrap();
    let evidence = lab.evidence(&other, 2);
    let forged = Holder::with(AttestedKey::generate().unwrap(), &evidence);
    let met = meet(&lab, &server, AuthorityPolicy::kms(None), Some(&forged)).await;
    assert!(matches!(met.server, Some(Err(PeerError::OtherKey))));
}

/// Shows a certificate, and signs with another key than that of the certificate.
#[derive(Debug)]
struct Stolen(Arc<CertifiedKey>);

impl ResolvesClientCert for Stolen {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_client_must_have_the_key_of_its_certificate() {
    let lab = Lab::new();
    let root = root("one", None);
    let server = server(&lab, Some(&root), |_| {});
    let peers = PeerVerifier::new(lab.verifier(), PeerPolicy::any_app(Policy::default()));
    let acceptor = JudgingAcceptor::new(&server.key, &server.certificate, &[], peers).unwrap();
    let owner = lab.holder(2);
    for (key, passes) in [(&owner.key, true), (&AttestedKey::generate().unwrap(), false)] {
        let signing = any_supported_type(&key.private_key_der()).unwrap();
        let shown = CertifiedKey::new(owner.certificate.chain().to_vec(), signing);
        let mut config = authority_client_config(AuthorityPolicy::kms(None), None, now).unwrap();
        config.client_auth_cert_resolver = Arc::new(Stolen(Arc::new(shown)));
        let connector = TlsConnector::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let name = ServerName::try_from("kms.example").unwrap();
        let asking = async { connector.connect(name, TcpStream::connect(address).await.unwrap()).await };
        let serving = async { acceptor.accept(listener.accept().await.unwrap().0).await };
        let (server, _client) = tokio::join!(serving, asking);
        assert_eq!(server.is_ok_and(|judged| judged.peer.is_ok()), passes);
    }
}

#[tokio::test]
async fn every_root_of_a_chain_can_be_pinned() {
    let lab = Lab::new();
    let first = root("one", None);
    let second = root("two", Some(&first));
    let third = root("three", Some(&second));
    let server = server(&lab, Some(&third), |_| {});
    for (pinned, shown) in
        [(None, 3), (Some(pin(&first)), 3), (Some(pin(&second)), 2), (Some(pin(&third)), 1)]
    {
        let authority = meet(&lab, &server, AuthorityPolicy::kms(pinned), None).await.client.unwrap();
        assert_eq!(authority.root_public_key(), pin(&third));
        assert_eq!(authority.roots().len(), shown);
    }
    let other = AuthorityPolicy::kms(Some(pin(&root("one", None))));
    let refused = meet(&lab, &server, other, None).await.client.unwrap_err();
    assert!(refused.contains("has the key that is expected"), "{refused}");
}

#[tokio::test]
async fn chains_that_lead_to_a_pinned_root_in_no_good_way() {
    let lab = Lab::new();
    let first = root("one", None);
    let pinned = || AuthorityPolicy::kms(Some(pin(&first)));
    let refused = async |holder: Holder, reason: &str| {
        let refused = meet(&lab, &holder, pinned(), None).await.client.unwrap_err();
        assert!(refused.contains(reason), "{reason}: {refused}");
    };
    // A stranger's root of the same name, with the pinned one put above it.
    let stranger = root("one", None);
    let impostor = server(&lab, Some(&stranger), |_| {});
    let pem = impostor.certificate.chain_pem().concat() + &first.certificate_pem();
    let forged = AttestedCertificate::from_pem_chain(&pem).unwrap();
    refused(Holder { key: impostor.key, certificate: forged }, "was not signed by the next one").await;

    refused(server(&lab, Some(&first), |subject| subject.usage = None), "is not for kms:rpc").await;
    let app = |subject: &mut Subject| subject.usage = Some("app:custom".to_owned());
    refused(server(&lab, Some(&first), app), "is not for kms:rpc").await;
    let old = |subject: &mut Subject| subject.not_after = now() - days(1) / 2;
    refused(server(&lab, Some(&first), old), "does not hold").await;
    let client = |subject: &mut Subject| subject.server = false;
    refused(server(&lab, Some(&first), client), "does not hold").await;
    refused(server(&lab, None, |_| {}), "shows 1 certificates").await;

    let ended = root_with("two", Some(&first), |subject| subject.not_after = now() - days(1) / 2);
    refused(server(&lab, Some(&ended), |_| {}), "is not valid at this time").await;
    let of_app = root_with("two", Some(&first), |subject| subject.usage = Some("app:ca".to_owned()));
    refused(server(&lab, Some(&of_app), |_| {}), "authority of something else").await;
    let shallow = root_with("one", None, |subject| subject.path_length = Some(0));
    let below = root("two", Some(&shallow));
    let policy = AuthorityPolicy::kms(Some(pin(&shallow)));
    let met = meet(&lab, &server(&lab, Some(&below), |_| {}), policy, None).await;
    let reason = met.client.unwrap_err();
    assert!(reason.contains("so many others below it"), "{reason}");
}

#[test]
fn certificates_are_issued_for_keys_of_others() {
    let above = root("one", None);
    let authority = root_with("app", Some(&above), |subject| subject.path_length = Some(0));
    let key = AttestedKey::generate().unwrap();
    let evidence = Evidence { quote: Some(vec![1]), event_log: "[]".to_owned(), attestation: None };
    let issued = authority.issue(key.public_key(), Some(&evidence), &subject()).unwrap();
    assert_eq!(issued.chain().len(), 3);
    assert_eq!(issued.chain_pem().get(1..).unwrap(), authority.chain_pem());
    let leaf = crate::inspect(&issued.chain()[0]).unwrap();
    assert_eq!(leaf.public_key, key.public_key());
    assert!(authority.issue(b"no key", None, &subject()).is_err());
}
