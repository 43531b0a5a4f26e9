//! A vendor with its collateral service, a platform, and a machine for KMS processes on it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cloister_development_tee::{
    HostProcess, HostProcessAgent, PccsBody, Platform, PlatformKey, Vendor, VendorOptions,
};
use cloister_kms::{Config, Kms, StartError};
use cloister_kms_api::Hex;
use cloister_verifier::Clock;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) const TOKEN: &str = "a-token-of-the-administrator-in-tests";

/// What a process needs to be a KMS.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) data_dir: PathBuf,
    pub(crate) agent_socket: PathBuf,
    pub(crate) token_file: PathBuf,
    pub(crate) root_file: PathBuf,
    pub(crate) rules_file: Option<PathBuf>,
    pub(crate) pccs: String,
}

pub(crate) struct Lab {
    pub(crate) dir: TempDir,
    pub(crate) process: Arc<HostProcess>,
    pccs: SocketAddr,
    _agent: HostProcessAgent,
    _platform: watch::Sender<Option<Arc<Platform>>>,
}

pub(crate) fn now() -> Timestamp {
    Clock::system().now()
}

impl Place {
    pub(crate) fn config(&self) -> Config {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        Config {
            agent_socket: self.agent_socket.clone(),
            admin_token_file: Some(self.token_file.clone()),
            development_root: Some(self.root_file.clone()),
            pccs_url: Some(self.pccs.parse().unwrap()),
            initial_rules: self.rules_file.clone(),
            ..Config::new(&self.data_dir, any, any)
        }
    }

    pub(crate) async fn start(&self) -> Result<Kms, StartError> {
        Kms::start(self.config()).await
    }
}

impl Lab {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("kms-lab").tempdir().unwrap();
        let vendor = Arc::new(Vendor::in_memory(VendorOptions::default(), now()).unwrap());
        let key = PlatformKey::generate().unwrap();
        let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now()).unwrap();
        let (platform, platforms) = watch::channel(Some(Arc::new(Platform::new(key, &chain).unwrap())));
        let executable = dir.path().join("executable");
        std::fs::write(&executable, "the program of a KMS").unwrap();
        let process = Arc::new(HostProcess::measure(&dir.path().join("platform"), &executable).unwrap());
        let socket = dir.path().join("agent/socket");
        let agent = HostProcessAgent::serve(&socket, Arc::clone(&process), platforms).unwrap();
        vendor.publish_root(&dir.path().join("root.pem")).unwrap();
        std::fs::write(dir.path().join("token"), TOKEN).unwrap();
        let pccs = collateral_service(Arc::clone(&vendor)).await;
        Self { dir, process, pccs, _agent: agent, _platform: platform }
    }

    /// A KMS with this name, which need not exist.
    pub(crate) fn place(&self, name: &str) -> Place {
        Place {
            data_dir: self.dir.path().join(name),
            agent_socket: self.dir.path().join("agent/socket"),
            token_file: self.dir.path().join("token"),
            root_file: self.dir.path().join("root.pem"),
            rules_file: None,
            pccs: format!("http://{}", self.pccs),
        }
    }

    /// One that lets other KMSes of this machine have its roots.
    pub(crate) fn sharing(&self, name: &str) -> Place {
        let rules = self.dir.path().join("rules.json");
        let measurement = Hex::from(self.process.mr_aggregated());
        let text = serde_json::json!({
            "platform": {
                "allowedTcbStatuses": ["UpToDate"],
                "kmsMeasurements": [measurement],
            },
            "apps": {},
        });
        std::fs::write(&rules, text.to_string()).unwrap();
        Place { rules_file: Some(rules), ..self.place(name) }
    }
}

async fn collateral_service(vendor: Arc<Vendor>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let vendor = Arc::clone(&vendor);
            let service = service_fn(move |request| {
                let answer = collateral(&vendor, &request);
                async { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

fn collateral(vendor: &Vendor, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let fmspc = hex::encode(vendor.options().fmspc);
    let with = |header: &str, made: PccsBody| {
        let chain: String =
            made.issuer_chain.bytes().flat_map(|byte| ['%', digit(byte >> 4), digit(byte & 15)]).collect();
        Response::builder().header(header, chain).body(Full::from(made.body)).unwrap()
    };
    match request.uri().path() {
        "/sgx/certification/v4/pckcrl" => {
            with("sgx-pck-crl-issuer-chain", vendor.pccs_pck_crl(now()).unwrap())
        }
        "/sgx/certification/v4/rootcacrl" => {
            Response::new(Full::from(hex::encode(vendor.root_crl(now()).unwrap())))
        }
        "/tdx/certification/v4/tcb" => {
            with("tcb-info-issuer-chain", vendor.pccs_tcb(&fmspc, now()).unwrap().unwrap())
        }
        "/tdx/certification/v4/qe/identity" => {
            with("sgx-enclave-identity-issuer-chain", vendor.pccs_qe_identity(now()).unwrap())
        }
        _ => Response::builder().status(StatusCode::NOT_FOUND).body(Full::default()).unwrap(),
    }
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap()
}

/// Copies a data directory of a KMS that does not run.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
