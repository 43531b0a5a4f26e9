//! Certificates for keys of the calling application (platform reference, section 9.4).

use std::sync::Arc;

use cloister_app_compose::AppId;
use cloister_kms_api::log::Released;
use cloister_kms_api::{KmsError, KmsErrorCode, SignCertRequest, SignCertResponse};
use cloister_ra_tls::{
    AuthoritySubject, CertificateIssuer, CertificateRequest, Evidence, InvalidRequest, PeerError, RaTlsError,
    RequestedCertificate, Subject,
};
use hyper::body::Incoming;
use jiff::{SignedDuration, Timestamp};

use super::caller::{describe, unauthorized};
use super::{Peer, record, underivable};
use crate::door::{Answer, Shared, bad, chain, json, read};
use crate::policy::Question;
use crate::state::LiveRoot;

/// The one form of requests that is read.
const API_VERSION: u32 = 2;
/// What the certificate is for.
const USAGE: &str = "app:custom";
/// What the application's authority is for.
const AUTHORITY_USAGE: &str = "app:ca";
/// How far a clock may be behind.
const SKEW: SignedDuration = SignedDuration::from_hours(24);
/// How long a certificate holds, unless the request says otherwise: at most as long as the authority.
const VALIDITY: SignedDuration = SignedDuration::from_hours(24 * 365);
/// How long the authority of an application holds.
const AUTHORITY_VALIDITY: SignedDuration = SignedDuration::from_hours(24 * 365 * 10);

pub(super) async fn release(shared: &Arc<Shared>, peer: &Peer, body: Incoming) -> Result<Answer, KmsError> {
    let request: SignCertRequest = read(body, shared.limits.body).await?;
    if request.api_version != API_VERSION {
        return Err(bad(format!(
            "api_version {} is not known here; there is {API_VERSION}",
            request.api_version
        )));
    }
    let csr = CertificateRequest::decode(request.csr.as_ref(), request.signature.as_ref())
        .map_err(|error| not_a_request(&error))?;
    // The key's own evidence says whose it is; the caller must be that machine.
    let identity = verify(shared, &csr).await?;
    let described = describe(&identity, &request.vm_config)?;
    let (_, app_id) = peer.application(&request.vm_config)?;
    if (described.boot.app_id, described.boot.instance_id) != (Some(app_id), peer.identity.app.instance_id) {
        return Err(unauthorized("the certificate is requested for the key of another machine than asks"));
    }
    let grant = shared.keys.authorize(Question::App, &described.boot).await?;
    let root = shared.keys.snapshot().current.clone();
    let chain = certificates(&root, app_id, &csr, shared.keys.now())?;
    let answer = json(&SignCertResponse { certificate_chain: chain })?;
    record(shared, &grant, Released::Certificate, described.boot.caller(), root.version(), None).await?;
    Ok(answer)
}

/// Verifies the evidence of a request, on a thread that may wait for collateral.
async fn verify(
    shared: &Arc<Shared>,
    csr: &CertificateRequest,
) -> Result<cloister_ra_tls::PeerIdentity, KmsError> {
    let evidence = csr.evidence().map_err(|error| unauthorized(chain(&error)))?;
    let _turn = shared.verifying.acquire().await.map_err(|_| stopping())?;
    let (peers, public_key) = (shared.peers.clone(), csr.public_key().to_vec());
    tokio::task::spawn_blocking(move || peers.evidence(&public_key, &evidence))
        .await
        .map_err(|_| stopping())?
        .map_err(|error: PeerError| {
            let code =
                if error.is_temporary() { KmsErrorCode::InternalError } else { KmsErrorCode::Unauthorized };
            KmsError::new(code, format!("the request's evidence: {}", chain(&error)))
        })
}

/// PEM: leaf, the application's authority, root.
fn certificates(
    root: &LiveRoot,
    app_id: AppId,
    csr: &CertificateRequest,
    now: Timestamp,
) -> Result<Vec<String>, KmsError> {
    let wanted = csr.certificate();
    let (not_before, not_after) = validity(wanted, now)?;
    let failed = |error: RaTlsError| KmsError::new(KmsErrorCode::InternalError, chain(&error));
    let root_key = root.secrets.ca_key_pkcs8().map_err(underivable)?;
    let above = CertificateIssuer::from_pem_and_der(&root.root.certificate, &root_key).map_err(failed)?;
    let authority = AuthoritySubject {
        organization: Some("Dstack".to_owned()),
        common_name: "Dstack App CA".to_owned(),
        app_id: Some(app_id),
        usage: Some(AUTHORITY_USAGE.to_owned()),
        path_length: Some(0),
        not_before: now.saturating_sub(SKEW).unwrap_or(now),
        not_after: now.saturating_add(AUTHORITY_VALIDITY).unwrap_or(now),
    };
    let key = root.secrets.app_ca_key(&app_id).map_err(underivable)?;
    let authority = CertificateIssuer::authority(&key, &authority, Some(&above)).map_err(failed)?;
    let subject = Subject {
        organization: wanted.organization.clone(),
        common_name: wanted.subject.clone(),
        names: wanted.alternative_names.clone(),
        app_id: Some(app_id),
        usage: Some(USAGE.to_owned()),
        server: wanted.server,
        client: wanted.client,
        not_before,
        not_after,
    };
    let evidence = Evidence { attestation: Some(csr.attestation().to_vec()), ..Evidence::default() };
    let leaf = authority
        .issue(csr.public_key(), wanted.with_evidence.then_some(&evidence), &subject)
        .map_err(|error| bad(format!("the certificate cannot be made as requested: {}", chain(&error))))?;
    Ok(leaf.chain_pem())
}

/// From when until when, within what the application's authority holds.
fn validity(wanted: &RequestedCertificate, now: Timestamp) -> Result<(Timestamp, Timestamp), KmsError> {
    let given = |seconds: Option<u64>| {
        seconds
            .map(|seconds| {
                i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok())
            })
            .map(|at| at.ok_or_else(|| bad("a date of the request is out of range")))
            .transpose()
    };
    let earliest = now.saturating_sub(SKEW).unwrap_or(now);
    let latest = now.saturating_add(AUTHORITY_VALIDITY).unwrap_or(now);
    let default = now.saturating_add(VALIDITY).unwrap_or(now);
    let not_before = given(wanted.not_before)?.unwrap_or(earliest).max(earliest);
    let not_after = given(wanted.not_after)?.unwrap_or(default).min(latest);
    if not_before > not_after {
        Err(bad("the certificate would end before it begins"))
    } else {
        Ok((not_before, not_after))
    }
}

fn not_a_request(error: &InvalidRequest) -> KmsError {
    match error {
        InvalidRequest::Evidence(_) => unauthorized(chain(error)),
        _ => bad(chain(error)),
    }
}

fn stopping() -> KmsError {
    KmsError::new(KmsErrorCode::InternalError, "the KMS is stopping")
}
