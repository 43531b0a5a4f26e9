//! Asking a service for its report, over ordinary TLS. Nothing that comes back is believed.

use std::net::SocketAddr;

use cloister_aci::report::Nonce;
use reqwest::{Client, redirect};

use super::reason::Reason;
use super::target::Target;
use crate::upstream::{names, tls};

/// Longest report, in bytes: a quote, its log and a compose document have some hundred kilobytes.
const MAX_REPORT_BYTES: usize = 4 << 20;
const PATH: &str = "v1/aci/attestation";

/// The report of a service about a nonce, as it came.
pub(super) async fn report(target: &Target, nonce: &Nonce) -> Result<Vec<u8>, Reason> {
    let client = client(target)?;
    let mut url = target.base_url.clone();
    // The origin's, whatever path its other surfaces have.
    url.set_path(PATH);
    url.query_pairs_mut().append_pair("nonce", &nonce.to_string());
    let unreachable = |error: reqwest::Error| {
        Reason::from(if error.is_timeout() {
            "the upstream did not answer with evidence in time"
        } else {
            "the upstream cannot be reached for evidence"
        })
    };
    let mut answer = client.get(url).send().await.map_err(unreachable)?;
    if answer.status() != http::StatusCode::OK {
        let status = answer.status().as_u16();
        return Err(Reason::new(format!("the upstream answered {status} where its evidence should be")));
    }
    let mut report = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
        if report.len().saturating_add(chunk.len()) > MAX_REPORT_BYTES {
            return Err("the upstream's evidence is too long".into());
        }
        report.extend_from_slice(&chunk);
    }
    Ok(report)
}

/// A client for one question: the next one goes over a new connection.
fn client(target: &Target) -> Result<Client, Reason> {
    let unusable = || Reason::from("no client for the upstream's evidence can be made");
    let tls = tls::by_authorities(target.ca_file.as_deref()).map_err(|_| unusable())?;
    let mut builder = Client::builder();
    let host = target.base_url.host_str().unwrap_or_default();
    if let Some(addresses) = names::of_this_machine(host) {
        let port = target.base_url.port_or_known_default().unwrap_or_default();
        builder = builder.resolve_to_addrs(host, &addresses.map(|address| SocketAddr::new(address, port)));
    }
    builder
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .https_only(true)
        .connect_timeout(target.connect)
        .timeout(target.patience)
        .build()
        .map_err(|_| unusable())
}
