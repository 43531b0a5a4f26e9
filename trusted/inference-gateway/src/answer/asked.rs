//! A request that was read, shaped and admitted, with the routes that may answer it.

use std::sync::Arc;

use bytes::Bytes;
use cloister_aci::sha256;

use super::Incoming;
use crate::admission::{Admission, Ask, KeyHash};
use crate::body::{Body, Constraints};
use crate::config::Pricing;
use crate::e2ee::{self, Sealer};
use crate::error::{GatewayError, Kind};
use crate::format::{self, Shaped};
use crate::gateway::{Gateway, Live};
use crate::routing::{Route, Wish};
use crate::verification::is_required;

/// What is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) key: KeyHash,
    /// Of the body as it came, or decrypted.
    pub(super) received_hash: String,
    pub(super) shaped: Shaped,
    /// Of the shaped body.
    pub(super) shaped_hash: String,
    pub(super) constraints: Constraints,
    pub(super) admission: Admission,
    pub(super) pricing: Pricing,
    /// Best first, never empty.
    pub(super) routes: Vec<Arc<Route>>,
    /// Id of the answer, where the surface has one.
    pub(super) answer_id: Option<String>,
    /// Whether only a verified upstream may answer.
    pub(super) is_verified_only: bool,
}

/// Why a request was not admitted, and whether it came encrypted.
#[derive(Debug)]
pub(super) struct Denied {
    pub(super) error: GatewayError,
    pub(super) sealer: Option<Sealer>,
}

/// Reads, admits and shapes a request.
pub(super) async fn ask(
    gateway: &Gateway,
    live: &Live,
    incoming: &Incoming,
    random: u64,
) -> Result<(Asked, Option<Sealer>), Denied> {
    let in_clear = |error| Denied { error, sealer: None };
    let key = incoming.key.ok_or_else(|| in_clear(no_key()))?;
    let (body, sealer) = open(gateway, incoming, key).await.map_err(in_clear)?;
    match admit(gateway, live, incoming, key, &body, random).await {
        Ok(asked) => Ok((asked, sealer)),
        Err(error) => Err(Denied { error, sealer }),
    }
}

async fn open(
    gateway: &Gateway,
    incoming: &Incoming,
    key: KeyHash,
) -> Result<(Bytes, Option<Sealer>), GatewayError> {
    if !e2ee::is_asked(&incoming.headers) {
        return Ok((incoming.body.clone(), None));
    }
    // What was seen is remembered on the disk: only for who has a key.
    gateway.control.identify(key).await?;
    let (identity, now) = (gateway.notary.identity(), crate::gateway::unix_now());
    let Incoming { headers, surface, body, .. } = incoming;
    let opened = e2ee::open(headers, *surface, body, &identity, &gateway.store, now).await?;
    Ok((opened.body, Some(opened.sealer)))
}

async fn admit(
    gateway: &Gateway,
    live: &Live,
    incoming: &Incoming,
    key: KeyHash,
    bytes: &Bytes,
    random: u64,
) -> Result<Asked, GatewayError> {
    let body = Body::parse(bytes)?;
    let mut constraints = Constraints::of(&body)?;
    constraints.verified |= incoming.is_tee_host;
    let model = format::asked_model(&body)?;
    let ask = Ask {
        key,
        model: &model,
        provider: body.raw("provider"),
        is_tee_host: incoming.is_tee_host,
        body: bytes,
    };
    let admission = gateway.control.admit(&ask).await?;
    // Nothing is told about models before the key is known.
    let known = live.catalogue.model(&model).cloned();
    let Some(known) = known else {
        let wish = Wish { model: &model, constraints: &constraints, parameters: &[], random };
        let error = live.catalogue.candidates(&wish).err();
        return Err(error.unwrap_or_else(|| GatewayError::new(Kind::Internal, "The model was not found")));
    };
    let mut shaped = format::shape(incoming.surface, bytes, &known)?;
    shaped.created = crate::gateway::unix_now();
    let routes = routes(live, &shaped, &constraints, &admission, random)?;
    let pricing = admission.pricing.clone().unwrap_or_else(|| known.config.pricing.clone());
    let received_hash = sha256(bytes);
    // A body that nobody had to change is not hashed twice.
    let shaped_hash = if shaped.body == bytes { received_hash.clone() } else { sha256(&shaped.body) };
    Ok(Asked {
        key,
        received_hash,
        shaped_hash,
        answer_id: format::answer_id(incoming.surface, &incoming.request_id),
        is_verified_only: is_required(&constraints, &known, incoming.is_tee_host),
        shaped,
        constraints,
        admission,
        pricing,
        routes,
    })
}

fn no_key() -> GatewayError {
    GatewayError::new(Kind::Authentication, "A valid API key is needed: 'Authorization: Bearer <key>'")
}

/// The routes to try: the catalogue's choice, or those that a control plane names out of it.
fn routes(
    live: &Live,
    shaped: &Shaped,
    constraints: &Constraints,
    admission: &Admission,
    random: u64,
) -> Result<Vec<Arc<Route>>, GatewayError> {
    let parameters: Vec<&str> = shaped.parameters.iter().map(String::as_str).collect();
    let wish = |constraints| Wish { model: &shaped.model, constraints, parameters: &parameters, random };
    let Some(named) = &admission.routes else { return live.catalogue.candidates(&wish(constraints)) };
    // How far it may fall back is seen in the control plane's order, not in the catalogue's.
    let unbound = Constraints { no_fallbacks: false, ..constraints.clone() };
    let allowed = live.catalogue.candidates(&wish(&unbound))?;
    let mut routes: Vec<Arc<Route>> =
        named.iter().filter_map(|id| allowed.iter().find(|route| route.id == *id).cloned()).collect();
    if constraints.no_fallbacks {
        if constraints.order.is_empty() {
            routes.truncate(1);
        } else {
            routes.retain(|route| constraints.order.contains(&route.upstream.name));
        }
    }
    if routes.is_empty() {
        let message = "The model has no route that this key may use under the constraints of 'provider'";
        return Err(GatewayError {
            param: Some("provider".to_owned()),
            ..GatewayError::new(Kind::NoRoute, message)
        });
    }
    Ok(routes)
}
