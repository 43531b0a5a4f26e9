//! From a request on a surface to its answer.

use std::pin::pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;

use super::{caller, host, inbound};
use crate::admission::KeyHash;
use crate::answer::{Incoming, answer, denial};
use crate::error::{GatewayError, Kind};
use crate::gateway::Gateway;
use crate::observe::{About, RequestSpan};
use crate::surface::Surface;
use crate::unattended::unattended;

/// A header that older clients sent.
const RETIRED: &str = "x-upstream-verification";

/// Reads the request, within limits, and has it answered. `request_id` is `req_` and 32 hex digits.
pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    surface: Surface,
    request: Request,
    request_id: String,
    span: Option<RequestSpan>,
) -> Response {
    // Whoever ends the gateway waits for this one from here on, or it sees that the gateway is about to end.
    let token = gateway.requests.token();
    let (parts, body) = request.into_parts();
    let key = match surface {
        Surface::Messages => caller::key_of_messages(&parts.headers),
        Surface::Chat | Surface::Completions | Surface::Embeddings | Surface::Responses => {
            caller::key_of(&parts.headers)
        }
    };
    let allowed = match key {
        _ if gateway.is_draining() => Err(ending()),
        _ if gateway.store.trouble().is_some() => Err(failing()),
        None => Err(caller::unauthenticated()),
        Some(_) if parts.headers.contains_key(RETIRED) => {
            let message = "The header X-Upstream-Verification is retired: use provider.aci_verified";
            Err(GatewayError::new(Kind::InvalidRequest, message))
        }
        // Nothing is kept for whoever has no key: bodies are the memory of those who have one.
        Some(key) => gateway.control.recognise(key).await.map(|()| key),
    };
    let key = match allowed {
        Ok(key) => key,
        Err(refusal) => {
            drop(token);
            inbound::refuse(&parts.headers, body).await;
            return about(gateway, key, denial(surface, &request_id, &refusal, &[]));
        }
    };
    let arriving = Arriving { gateway, key: Some(key), request_id: &request_id };
    let share = gateway.bodies.share_of(key, 1);
    let body = {
        let reading = pin!(inbound::read(&parts.headers, body, share));
        tokio::select! {
            biased;
            body = reading => body,
            () = gateway.cut.cancelled() => Err(ending()),
        }
    };
    let body = match arriving.end(body).await {
        Ok(body) => body,
        Err(error) => return about(gateway, Some(key), denial(surface, &request_id, &error, &[])),
    };
    let is_tee_host = host::is_tee_host(&gateway.live().config.tee_hosts, &parts);
    let (headers, span) = (parts.headers, span.map(Box::new));
    let incoming = Incoming { surface, headers, key, is_tee_host, body, request_id, span };
    about(gateway, Some(key), answer(Arc::clone(gateway), incoming, token).await)
}

/// Names who asked for the log, where the response does not.
fn about(gateway: &Gateway, key: Option<KeyHash>, mut response: Response) -> Response {
    if response.extensions().get::<About>().is_none() {
        let key = key.and_then(|key| gateway.control.name(key));
        response.extensions_mut().insert(About { key, model: None });
    }
    response
}

/// A request until its body is there. One whose body does not come as it should counts as one of its key's, also where its
/// client leaves before that: until then it had others' memory.
struct Arriving<'a> {
    gateway: &'a Arc<Gateway>,
    /// Until it was counted, or need not be.
    key: Option<KeyHash>,
    request_id: &'a str,
}

impl Arriving<'_> {
    /// The body, or what its sender is told.
    async fn end(mut self, body: Result<Bytes, GatewayError>) -> Result<Bytes, GatewayError> {
        // That there is no room, or that the gateway ends, is not its sender's fault.
        let is_fault = body.as_ref().is_err_and(|error| error.kind != Kind::Unavailable);
        // It is asked once, whoever leaves meanwhile.
        match self.key.take().filter(|_| is_fault) {
            Some(key) => self.gateway.control.count_refused(key, self.request_id).await.and(body),
            None => body,
        }
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let (gateway, request_id) = (Arc::clone(self.gateway), self.request_id.to_owned());
        unattended(async move { drop(gateway.control.count_refused(key, &request_id).await) });
    }
}

/// What a request is told that the gateway does not answer any more.
pub(crate) fn ending() -> GatewayError {
    let error = GatewayError::new(Kind::Unavailable, "The gateway is about to end. Please retry.");
    GatewayError { retry_after: Some(1), ..error }
}

/// What could not be recorded is not begun.
fn failing() -> GatewayError {
    const RETRY_S: u64 = 5;
    let error =
        GatewayError::new(Kind::Unavailable, "The gateway cannot keep records at the moment. Please retry.");
    GatewayError { retry_after: Some(RETRY_S), ..error }
}
