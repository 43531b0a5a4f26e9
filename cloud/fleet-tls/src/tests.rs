use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::*;

const NOW: i64 = 1_790_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn authority() -> (tempfile::TempDir, Authority) {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::load_or_create(dir.path(), now()).unwrap();
    (dir, authority)
}

fn names() -> Vec<String> {
    vec!["localhost".to_owned(), "127.0.0.1".to_owned()]
}

/// One handshake and one byte each way; the server's view of its peer.
async fn handshake(server: ServerConfig, client: ClientConfig) -> Result<Option<Identity>, std::io::Error> {
    let (near, far) = duplex(64 * 1024);
    let serve = async {
        let mut stream = TlsAcceptor::from(Arc::new(server)).accept(far).await?;
        stream.write_all(b"x").await?;
        stream.flush().await?;
        let identity = peer_identity(stream.get_ref().1.peer_certificates());
        Ok::<_, std::io::Error>(identity)
    };
    let connect = async {
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, near).await?;
        stream.read_u8().await
    };
    let (at_server, at_client) = tokio::join!(serve, connect);
    at_client?;
    at_server
}

#[tokio::test]
async fn peers_know_each_other_by_certificate() {
    let (_dir, authority) = authority();
    let node = authority.issue(&Identity::Node("alpha".to_owned()), &names(), now()).unwrap();
    let control = authority.issue(&Identity::ControlPlane, &names(), now()).unwrap();
    let seen = handshake(server_config(&node, false).unwrap(), client_config(&control).unwrap()).await;
    assert_eq!(seen.unwrap(), Some(Identity::ControlPlane));
}

#[tokio::test]
async fn a_stranger_is_refused_in_both_directions() {
    let ((_a, ours), (_b, theirs)) = (authority(), authority());
    let server = ours.issue(&Identity::ControlPlane, &names(), now()).unwrap();
    let stranger = theirs.issue(&Identity::ControlPlane, &names(), now()).unwrap();
    let mut half_stranger = stranger.clone();
    half_stranger.authority = ours.certificate_pem().to_owned();
    for client in [stranger, half_stranger] {
        let outcome =
            handshake(server_config(&server, false).unwrap(), client_config(&client).unwrap()).await;
        assert!(outcome.is_err());
    }
}

#[tokio::test]
async fn enrolment_trusts_the_pinned_authority_only() {
    let ((_a, ours), (_b, theirs)) = (authority(), authority());
    let server = ours.issue(&Identity::ControlPlane, &names(), now()).unwrap();
    let good: JoinToken = JoinToken::new(ours.certificate_der(), [1; 32]).to_string().parse().unwrap();
    let anonymous =
        handshake(server_config(&server, true).unwrap(), enrolment_client_config(good.clone()).unwrap());
    assert_eq!(anonymous.await.unwrap(), None);
    let required = handshake(server_config(&server, false).unwrap(), enrolment_client_config(good).unwrap());
    assert!(required.await.is_err());
    let foreign = JoinToken::new(theirs.certificate_der(), [1; 32]);
    let outcome =
        handshake(server_config(&server, true).unwrap(), enrolment_client_config(foreign).unwrap()).await;
    assert!(outcome.is_err());
}

#[tokio::test]
async fn a_signed_request_carries_the_identity_that_the_authority_chose() {
    let (_dir, authority) = authority();
    let (private_key, request) = make_node_request().unwrap();
    let identity = Identity::Node("beta-2".to_owned());
    let node = Credentials {
        certificate: authority.sign_request(&request, &identity, &names(), now()).unwrap(),
        private_key,
        authority: authority.certificate_pem().to_owned(),
    };
    let server = authority.issue(&Identity::ControlPlane, &names(), now()).unwrap();
    let seen = handshake(server_config(&server, true).unwrap(), client_config(&node).unwrap()).await;
    assert_eq!(seen.unwrap(), Some(identity));
}

#[test]
fn the_authority_and_credentials_survive_a_restart() {
    let (dir, first) = authority();
    let again = Authority::load_or_create(dir.path(), now()).unwrap();
    assert_eq!(first.certificate_pem(), again.certificate_pem());
    let node = again.issue(&Identity::ControlPlane, &names(), now()).unwrap();
    assert!(Credentials::load(dir.path(), "node").unwrap().is_none());
    node.save(dir.path(), "node").unwrap();
    let loaded = Credentials::load(dir.path(), "node").unwrap().unwrap();
    assert_eq!(loaded.certificate, node.certificate);
}

#[tokio::test]
async fn a_client_for_one_peer_refuses_every_other() {
    let (_dir, authority) = authority();
    let alpha = Identity::Node("alpha".to_owned());
    let ours = authority.issue(&Identity::ControlPlane, &names(), now()).unwrap();
    let server = authority.issue(&alpha, &names(), now()).unwrap();
    for (expected, accepted) in
        [(alpha, true), (Identity::Node("beta".to_owned()), false), (Identity::ControlPlane, false)]
    {
        let client = client_config_for(&ours, expected).unwrap();
        let outcome = handshake(server_config(&server, false).unwrap(), client).await;
        assert_eq!(outcome.is_ok(), accepted);
    }
}

#[test]
fn those_who_start_at_the_same_moment_share_authority_and_secret() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fleet");
    let starts: Vec<_> = (0..8)
        .map(|index| {
            let path = path.clone();
            std::thread::spawn(move || {
                let authority = Authority::load_or_create(&path, now()).unwrap();
                let leaf = authority.issue(&Identity::ControlPlane, &names(), now()).unwrap();
                client_config(&leaf).unwrap();
                let secret = shared_secret(&path, "log-urls.key", [index; 32]).unwrap();
                (authority.certificate_pem().to_owned(), secret)
            })
        })
        .collect();
    let mut seen: Vec<_> = starts.into_iter().map(|start| start.join().unwrap()).collect();
    seen.dedup();
    assert_eq!(seen.len(), 1);
    for entry in std::fs::read_dir(&path).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "only their owner reads them");
    }
    std::fs::write(path.join("log-urls.key"), "short").unwrap();
    assert!(shared_secret(&path, "log-urls.key", [0; 32]).is_err());
}

#[test]
fn hostile_names_and_tokens_are_refused() {
    for uri in ["cloister://node/", "cloister://node/A", "cloister://node/a/b", "cloister://other", ""] {
        assert!(uri.parse::<Identity>().is_err(), "{uri}");
    }
    for token in ["", "cjt_", "cjt_00_11", "cjt_zz"] {
        assert!(token.parse::<JoinToken>().is_err(), "{token}");
    }
}
