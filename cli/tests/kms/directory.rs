//! A directory that answers as it is told.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use cloister_ra_tls::{AttestedKey, AuthoritySubject, CertificateIssuer, KMS_USAGE, Subject};
use cloister_transparency_log::{Log, SigningKey};
use cloister_verifier::Clock;
use jiff::SignedDuration;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

pub(crate) const ORIGIN: &str = "kms.example/log";

/// Answers by path without query.
pub(crate) type Answers = HashMap<&'static str, String>;

/// A root and a server below it.
pub(crate) struct Authority {
    tls: Arc<rustls::ServerConfig>,
    root_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let now = Clock::system().now();
        let (not_before, not_after) =
            (now - SignedDuration::from_hours(1), now + SignedDuration::from_hours(1));
        let der =
            |key: &AttestedKey| PrivateKeyDer::from_pem_slice(key.private_key_pem().as_bytes()).unwrap();
        let (root_key, key) = (AttestedKey::generate().unwrap(), AttestedKey::generate().unwrap());
        let subject = AuthoritySubject {
            organization: None,
            common_name: "root".to_owned(),
            app_id: None,
            usage: None,
            path_length: None,
            not_before,
            not_after,
        };
        let root = CertificateIssuer::authority(der(&root_key).secret_der(), &subject, None).unwrap();
        let mut leaf = Subject::new("kms", vec!["kms.example".to_owned()], not_before, not_after);
        leaf.usage = Some(KMS_USAGE.to_owned());
        let certificate = root.issue(key.public_key(), None, &leaf).unwrap();
        let tls =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(certificate.chain().to_vec(), der(&key))
                .unwrap();
        Self { tls: Arc::new(tls), root_pem: root.certificate_pem() }
    }

    /// Serves for as long as the test lives, and writes its root into `home`.
    pub(crate) fn serve(&self, answers: Answers, home: &Path) -> SocketAddr {
        std::fs::write(home.join("root.pem"), &self.root_pem).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Arc::clone(&self.tls);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = rustls::ServerConnection::new(Arc::clone(&tls)).unwrap();
                let _ = exchange(rustls::StreamOwned::new(connection, stream.unwrap()), &answers);
            }
        });
        address
    }
}

fn exchange(stream: impl Read + Write, answers: &Answers) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        if stream.read_line(&mut header)? <= 2 {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    stream.read_exact(&mut vec![0; length])?;
    let path = line.split([' ', '?']).nth(1).unwrap_or_default();
    let (status, body) = match answers.get(path) {
        Some(body) => (200, body.as_str()),
        None => (404, "{}"),
    };
    let stream = stream.get_mut();
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")?;
    stream.flush()
}

/// A log of these records, and what a directory answers about it.
pub(crate) struct Kept {
    pub(crate) checkpoint: String,
    pub(crate) verifier_key: String,
    records: Vec<String>,
}

impl Kept {
    pub(crate) fn new(records: &[&str], seed: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path(), SigningKey::from_seed(&[seed; 32]), ORIGIN).unwrap();
        for record in records {
            log.append_blocking(record.as_bytes().to_vec()).unwrap();
        }
        Self {
            checkpoint: log.checkpoint().unwrap(),
            verifier_key: log.verifier_key(),
            records: records.iter().map(|record| (*record).to_owned()).collect(),
        }
    }

    pub(crate) fn answers(&self) -> Answers {
        let records = json!({ "start": 0, "records": self.records });
        HashMap::from([("/log/checkpoint", self.checkpoint.clone()), ("/log/records", records.to_string())])
    }
}
