//! `/development-pccs`: what the vendor of development platforms says about them, in the form of a
//! provisioning certificate caching service (platform reference, section 5.3), so that anybody can verify
//! quotes of this installation with tools of their own. Not there in production.

use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use cloister_development_tee::{PccsBody, TeeError, Vendor};
use jiff::Timestamp;
use serde::Deserialize;

use super::Api;
use super::error::{ApiError, ApiResult};

const PCK_CRL_CHAIN: &str = "sgx-pck-crl-issuer-chain";
const TCB_INFO_CHAIN: &str = "tcb-info-issuer-chain";
const IDENTITY_CHAIN: &str = "sgx-enclave-identity-issuer-chain";
const JSON: &str = "application/json";
/// The only kind of authority that certifies development platforms.
const PLATFORM_CA: &str = "platform";

/// The four documents that go with a quote.
pub(super) fn router() -> Router<Api> {
    const BASE: &str = "/development-pccs";
    Router::new()
        .route(&format!("{BASE}/sgx/certification/v4/pckcrl"), get(pck_crl))
        .route(&format!("{BASE}/sgx/certification/v4/rootcacrl"), get(root_crl))
        .route(&format!("{BASE}/tdx/certification/v4/tcb"), get(tcb))
        .route(&format!("{BASE}/tdx/certification/v4/qe/identity"), get(qe_identity))
}

#[derive(Deserialize)]
struct PckCrlQuery {
    ca: String,
}

#[derive(Deserialize)]
struct TcbQuery {
    fmspc: String,
}

async fn pck_crl(State(api): State<Api>, Query(query): Query<PckCrlQuery>) -> ApiResult<Response> {
    let (vendor, now) = vendor(&api)?;
    if query.ca != PLATFORM_CA {
        return Err(ApiError::not_found("Revocation list of that authority"));
    }
    let made = vendor.pccs_pck_crl(now).map_err(|error| failed(&error))?;
    Ok(response("application/pkix-crl", PCK_CRL_CHAIN, made))
}

/// Caching services send this one as hex text.
async fn root_crl(State(api): State<Api>) -> ApiResult<Response> {
    let (vendor, now) = vendor(&api)?;
    let list = vendor.root_crl(now).map_err(|error| failed(&error))?;
    Ok(([(CONTENT_TYPE, "text/plain")], hex::encode(list)).into_response())
}

async fn tcb(State(api): State<Api>, Query(query): Query<TcbQuery>) -> ApiResult<Response> {
    let (vendor, now) = vendor(&api)?;
    let made = vendor.pccs_tcb(&query.fmspc, now).map_err(|error| failed(&error))?;
    made.map(|made| response(JSON, TCB_INFO_CHAIN, made)).ok_or_else(|| ApiError::not_found("FMSPC"))
}

async fn qe_identity(State(api): State<Api>) -> ApiResult<Response> {
    let (vendor, now) = vendor(&api)?;
    let made = vendor.pccs_qe_identity(now).map_err(|error| failed(&error))?;
    Ok(response(JSON, IDENTITY_CHAIN, made))
}

fn vendor(api: &Api) -> ApiResult<(&Vendor, Timestamp)> {
    let vendor = api.development_vendor.as_deref();
    vendor.map(|vendor| (vendor, api.clock.now())).ok_or_else(|| ApiError::not_found("Development vendor"))
}

fn failed(error: &TeeError) -> ApiError {
    ApiError::internal(error)
}

/// A document with the chain of its issuer, percent-encoded as header values must be.
fn response(content_type: &'static str, chain_header: &'static str, made: PccsBody) -> Response {
    // Every octet that is not a letter or a digit: `+` in Base64 is a plus sign, not a space.
    let chain: String =
        made.issuer_chain
            .bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect();
    let mut response = ([(CONTENT_TYPE, content_type)], made.body).into_response();
    if let Ok(chain) = HeaderValue::from_str(&chain) {
        response.headers_mut().insert(HeaderName::from_static(chain_header), chain);
    }
    response
}
