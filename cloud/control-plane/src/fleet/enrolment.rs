//! How a machine becomes a node: an invitation that is good once, for which it gets a certificate.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use cloister_fleet_tls::{Authority, FleetTlsError, Identity, JoinToken};
use cloister_node_api::{EnrolRequest, EnrolResponse, NodeErrorCode};
use tracing::{info, warn};

use super::listener::{ListenerError, Shared};
use crate::audit::{self, INSTALLATION, System};
use crate::clock::{Clock, NoRandomness, Random};
use crate::store::{Store, StoreError};

/// Hosts and addresses of one node.
const MAX_NAMES: usize = 16;
const JOIN_TOKEN_LIFETIME: Duration = Duration::from_hours(24);

/// Makes an invitation that one node can use within a day.
pub(crate) async fn make_join_token(
    store: &Store,
    authority: &Authority,
    clock: &Clock,
    random: Random,
) -> Result<JoinToken, JoinTokenError> {
    let token = JoinToken::new(authority.certificate_der(), random.bytes()?);
    let now_ms = clock.now_ms();
    let lifetime_ms = i64::try_from(JOIN_TOKEN_LIFETIME.as_millis()).unwrap_or(i64::MAX);
    let mut change = store.change().await?;
    change.insert_join_token(&token.secret_hash(), now_ms.saturating_add(lifetime_ms), now_ms).await?;
    change.commit().await?;
    Ok(token)
}

/// Why no invitation was made.
#[derive(Debug, thiserror::Error)]
pub enum JoinTokenError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness for the secret.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

pub(super) async fn enrol(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<EnrolRequest>,
) -> Result<Json<EnrolResponse>, ListenerError> {
    let refused = ListenerError::Forbidden(
        "this join token is unknown, expired or used, or another node has this name; `cloister nodes invite` makes one",
    );
    let Ok(token) = request.join_token.parse::<JoinToken>() else { return Err(refused) };
    let identity: Identity = Identity::Node(request.name.clone())
        .to_string()
        .parse()
        .map_err(|()| ListenerError::Forbidden("a node's name is a DNS label in lower case"))?;
    if request.subject_alternative_names.len() > MAX_NAMES {
        return Err(ListenerError::Refused(NodeErrorCode::Invalid, "a node has at most 16 names"));
    }
    let work = enrol_recorded(&shared, &request, &token, &identity, refused);
    audit::as_system(System::Node, ("enrol_node", "node"), INSTALLATION, &shared.clock, work).await
}

/// Uses up the invitation and takes in the node.
async fn enrol_recorded(
    shared: &Shared,
    request: &EnrolRequest,
    token: &JoinToken,
    identity: &Identity,
    refused: ListenerError,
) -> Result<Json<EnrolResponse>, ListenerError> {
    let now_ms = shared.clock.now_ms();
    let mut change = shared.store.change().await?;
    if !change.use_join_token(&token.secret_hash(), &request.name, now_ms).await? {
        return Err(refused);
    }
    let certificate = shared
        .authority
        .sign_request(
            &request.certificate_request,
            identity,
            &request.subject_alternative_names,
            shared.clock.now(),
        )
        .map_err(|error: FleetTlsError| {
            warn!(
                node = request.name,
                error = &error as &dyn std::error::Error,
                "unusable certificate request"
            );
            ListenerError::Refused(NodeErrorCode::Invalid, "the certificate request cannot be used")
        })?;
    if change.node_by_name(&request.name).await?.is_none() {
        change.insert_node(&request.name, now_ms).await?;
    }
    change.commit().await?;
    info!(node = request.name, "a node was enrolled");
    Ok(Json(EnrolResponse { certificate, authority: shared.authority.certificate_pem().to_owned() }))
}
