//! The release port: what callers with good evidence may ask for.
//!
//! Each release goes the same way: what the caller is (`caller`), whether the policy lets it in, the keys,
//! the record in the log, and only then the answer.

mod app_key;
mod caller;
mod kms_key;
mod named_key;
mod public;
mod reseal;
mod sign_cert;

use std::sync::Arc;

use cloister_kms_api::log::{Caller, Event, Released};
use cloister_kms_api::{Hex, KmsError, KmsErrorCode, method};
use cloister_ra_tls::PeerIdentity;
use http::Request;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::door::{Activity, Admission, Answer, Shared, Who, bad, error, json, read};
use crate::policy::Grant;
pub(crate) use caller::named_image;
use caller::{Described, Stage};
pub(crate) use public::{app_owners, env_public_key, meta};

/// One connection of the release port.
pub(crate) struct Visitor {
    shared: Arc<Shared>,
    /// Who it is, or what it is told instead of an answer.
    peer: Result<Peer, KmsError>,
    admission: Admission,
    activity: Arc<Activity>,
}

/// A caller whose evidence was verified.
pub(crate) struct Peer {
    identity: Arc<PeerIdentity>,
    stage: Stage,
    who: Who,
    /// As far as the evidence alone tells.
    caller: Caller,
    /// The machine as it was described last, after the description was found to be true.
    described: Mutex<Option<Arc<Described>>>,
}

impl Visitor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        peer: Result<Arc<PeerIdentity>, KmsError>,
        admission: Admission,
        activity: Arc<Activity>,
    ) -> Self {
        Self { shared, peer: peer.map(Peer::new), admission, activity }
    }

    /// Who asks, if it may ask now.
    fn peer(&self) -> Result<&Peer, KmsError> {
        let peer = self.peer.as_ref().map_err(Clone::clone)?;
        if !self.admission.request(Instant::now()) {
            self.shared.metrics.throttled();
            return Err(KmsError::new(KmsErrorCode::TooManyRequests, "too many requests; ask again later"));
        }
        if peer.identity.valid_until < self.shared.keys.now() {
            self.activity.end();
            return Err(KmsError::new(
                KmsErrorCode::Unauthorized,
                "what vouches for the evidence of this connection has expired; connect again",
            ));
        }
        Ok(peer)
    }
}

/// Answers one request.
pub(crate) async fn answer(visitor: Arc<Visitor>, request: Request<Incoming>) -> Answer {
    let answered = match visitor.peer() {
        Ok(peer) => route(&visitor.shared, peer, request).await,
        Err(refusal) => Err(refusal),
    };
    answered.unwrap_or_else(|refusal| error(&refusal))
}

async fn route(shared: &Arc<Shared>, peer: &Peer, request: Request<Incoming>) -> Result<Answer, KmsError> {
    let (head, body) = request.into_parts();
    let limit = shared.limits.body;
    let kind = match full_name(head.uri.path()).as_deref() {
        Some(method::META) => return json(&meta(shared)),
        Some(method::ENV_PUBLIC_KEY) => return json(&env_public_key(shared, &read(body, limit).await?)?),
        Some(method::MACHINE) => return json(&shared.machine()),
        Some(method::APP_OWNERS) => return json(&app_owners(shared, &read(body, limit).await?)),
        Some(method::APP_KEY) => Released::AppKeys,
        Some(method::KEY) => Released::NamedKey,
        Some(method::KMS_KEY) => Released::Roots,
        Some(method::SIGN_CERT) => Released::Certificate,
        Some(method::CONFIRM_RESEAL) => Released::ResealConfirmed,
        _ => return Err(bad("no such method; see the methods of the release port")),
    };
    let released = match kind {
        Released::AppKeys => app_key::release(shared, peer, body).await,
        Released::NamedKey => named_key::release(shared, peer, body).await,
        Released::Roots => kms_key::release(shared, peer, body).await,
        Released::Certificate => sign_cert::release(shared, peer, body).await,
        Released::ResealConfirmed => reseal::release(shared, peer, body).await,
    };
    shared.metrics.release(kind, released.as_ref().map(drop).map_err(|refusal| refusal.code));
    match released {
        Ok(answer) => Ok(answer),
        Err(refusal) => Err(refused(shared, peer, kind, refusal).await),
    }
}

/// Callers may leave the service's name out, as everywhere on the platform.
pub(crate) fn full_name(path: &str) -> Option<String> {
    let name = path.strip_prefix("/prpc/")?;
    Some(if name.contains('.') { path.to_owned() } else { format!("/prpc/KMS.{name}") })
}

/// Records a refusal; says what is answered.
async fn refused(shared: &Shared, peer: &Peer, kind: Released, refusal: KmsError) -> KmsError {
    if matches!(refusal.code, KmsErrorCode::BadRequest | KmsErrorCode::TooManyRequests) {
        return refusal;
    }
    let known = peer.described.lock().as_ref().map(|described| described.boot.caller());
    let caller = known.unwrap_or_else(|| peer.caller.clone());
    let noted = shared.refusals.note(peer.who, Some(kind), caller, &refusal).await;
    noted.err().unwrap_or(refusal)
}

/// Records a release. After this, and not before, it may be answered.
async fn record(
    shared: &Shared,
    grant: &Grant,
    released: Released,
    caller: Caller,
    root_version: u32,
    name_hash: Option<Hex>,
) -> Result<(), KmsError> {
    let authorized_at = grant.authorized_at.clone();
    shared
        .keys
        .record(Event::Release { released, caller, root_version, name_hash, authorized_at })
        .await
        .map(drop)
}

/// A key that cannot be derived: practically impossible.
fn underivable(error: cloister_key_derivation::InvalidKey) -> KmsError {
    KmsError::new(KmsErrorCode::InternalError, error.to_string())
}
