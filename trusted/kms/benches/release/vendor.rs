//! The vendor of the platform that everything runs on, and its collateral service.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use cloister_development_tee::{Platform, PlatformKey, TdReport, Vendor, VendorOptions};
use cloister_ra_tls::AttestedKey;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::net::TcpListener;

use crate::Outcome;
use crate::caller::Holder;
use crate::machine::{Machine, evidence_of};

/// A platform that machines run on.
pub(crate) struct Vendored {
    pub(crate) vendor: Arc<Vendor>,
    pub(crate) platform: Arc<Platform>,
    machine: Machine,
}

impl Vendored {
    pub(crate) fn new() -> Outcome<Self> {
        let now = Timestamp::now();
        let vendor = Vendor::in_memory(VendorOptions::default(), now)?;
        let key = PlatformKey::generate()?;
        let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now)?;
        let platform = Arc::new(Platform::new(key, &chain)?);
        Ok(Self { vendor: Arc::new(vendor), platform, machine: Machine::new() })
    }

    /// A machine's fresh key with evidence.
    pub(crate) fn holder(&self) -> Outcome<Holder> {
        let key = AttestedKey::generate()?;
        let report = TdReport::new(self.machine.measured()?.1, [0; 48], key.report_data());
        let certificate = evidence_of(&self.machine, &key, self.platform.quote(&report)?)?;
        Ok(Holder { key, certificate, vm_config: self.machine.vm_config()? })
    }

    /// Serves collateral until the process ends.
    pub(crate) async fn serve(&self) -> Outcome<SocketAddr> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let vendor = Arc::clone(&self.vendor);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let vendor = Arc::clone(&vendor);
                let service = service_fn(move |request: Request<Incoming>| {
                    let vendor = Arc::clone(&vendor);
                    async move {
                        let failed = |_| {
                            let mut answer = Response::new(Full::default());
                            *answer.status_mut() = StatusCode::NOT_FOUND;
                            answer
                        };
                        Ok::<_, Infallible>(answer(&vendor, request.uri().path()).unwrap_or_else(failed))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(address)
    }
}

fn answer(vendor: &Vendor, path: &str) -> Outcome<Response<Full<Bytes>>> {
    let now = Timestamp::now();
    let fmspc = hex::encode_upper(VendorOptions::default().fmspc);
    let (header, body) = match path {
        "/tdx/certification/v4/tcb" => {
            ("TCB-Info-Issuer-Chain", vendor.pccs_tcb(&fmspc, now)?.ok_or("another platform")?)
        }
        "/tdx/certification/v4/qe/identity" => {
            ("SGX-Enclave-Identity-Issuer-Chain", vendor.pccs_qe_identity(now)?)
        }
        "/sgx/certification/v4/pckcrl" => ("SGX-PCK-CRL-Issuer-Chain", vendor.pccs_pck_crl(now)?),
        "/sgx/certification/v4/rootcacrl" => {
            return Ok(Response::new(Full::new(hex::encode(vendor.root_crl(now)?).into())));
        }
        _ => return Err("no such path".into()),
    };
    let chain: String = url::form_urlencoded::byte_serialize(body.issuer_chain.as_bytes()).collect();
    let answer = Response::builder().header(header, chain.replace('+', "%20"));
    Ok(answer.body(Full::new(body.body.into()))?)
}
