//! What GPUs attest, for older clients: those of verified upstreams, through them. Of any in this machine nothing is known.

use std::fmt;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::prover::busy;
use crate::accounting::Window;
use crate::error::{GatewayError, Kind};
use crate::gateway::Gateway;
use crate::routing::Route;

/// Where an upstream tells it.
const PATH: &str = "/v1/attestation/report";
/// What it is said to be of where there is none.
const ARCHITECTURE: &str = "HOPPER";
/// How many gateways may still be asked, one through the other.
const DEPTH: HeaderName = HeaderName::from_static("x-aci-forward-depth");
/// The most of them.
const MAX_DEPTH: u8 = 8;
/// Longest report of an upstream, in bytes.
const MAX_REPORT_BYTES: usize = 4 << 20;
/// Longest time for one upstream, and longest wait for a turn.
const PATIENCE: Duration = Duration::from_secs(20);
/// Upstreams that are asked at the same time.
const TURNS: usize = 4;
/// Callers that may wait or be served.
pub(super) const QUEUE: usize = 32;
/// Questions to upstreams in a minute. They make evidence for nobody else as quickly, and the gateway needs it, too.
pub(super) const PER_MINUTE: u64 = 120;

/// How upstreams are asked, as anybody may want it.
pub(super) struct Asking {
    places: Semaphore,
    turns: Semaphore,
    window: Window,
    started: Instant,
}

impl Default for Asking {
    fn default() -> Self {
        Self {
            places: Semaphore::new(QUEUE),
            turns: Semaphore::new(TURNS),
            window: Window::new(PER_MINUTE),
            started: Instant::now(),
        }
    }
}

impl Asking {
    /// Callers that wait or are served.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        QUEUE - self.places.available_permits()
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Asking")
    }
}

/// The evidence of GPUs about a nonce.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Gpus {
    nonce: String,
    evidence_list: Vec<Value>,
    arch: String,
}

#[derive(Deserialize)]
struct Report {
    nvidia_payload: String,
}

impl Gpus {
    /// Of a machine that has none.
    pub(super) fn none(nonce: &str) -> Self {
        Self { nonce: nonce.to_owned(), evidence_list: Vec::new(), arch: ARCHITECTURE.to_owned() }
    }

    /// Of the first verified upstream of a model that has any, over the channel that was verified. Fails for an unknown
    /// model, and where too many ask; where nobody has any it is that of none.
    pub(super) async fn of_model(
        gateway: &Gateway,
        model: &str,
        nonce: &str,
        headers: &HeaderMap,
    ) -> Result<Self, GatewayError> {
        let live = gateway.live();
        let known = live.catalogue.model(model).ok_or_else(|| GatewayError {
            param: Some("model".to_owned()),
            ..GatewayError::new(Kind::UnknownModel, "Nobody serves this model")
        })?;
        let Some(depth) = depth(headers).checked_sub(1) else { return Ok(Self::none(nonce)) };
        let asking = gateway.notary.asking();
        let _place = asking.places.try_acquire().map_err(|_| busy(1))?;
        for route in known.routes.iter().filter(|route| route.upstream.is_tee()) {
            let waited = timeout(PATIENCE, asking.turns.acquire()).await;
            let _turn = waited.map_err(|_| busy(1))?.map_err(|_| busy(1))?;
            let decision = asking.window.take(1, asking.started.elapsed());
            if !decision.admitted {
                return Err(busy(decision.reset_s));
            }
            let asked = timeout(PATIENCE, ask(gateway, route, nonce, depth)).await;
            if let Ok(Some(gpus)) = asked {
                return Ok(gpus);
            }
        }
        Ok(Self::none(nonce))
    }

    /// As reports have it: a JSON text.
    pub(super) fn payload(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How far a request may be passed on. Clients can only lower it.
fn depth(headers: &HeaderMap) -> u8 {
    let asked = headers.get(DEPTH).map(|value| value.to_str().ok().and_then(|text| text.parse().ok()));
    asked.map_or(MAX_DEPTH, |asked: Option<u8>| asked.unwrap_or(0)).min(MAX_DEPTH)
}

/// What an upstream tells; nothing that is about another nonce.
async fn ask(gateway: &Gateway, route: &Route, nonce: &str, depth: u8) -> Option<Gpus> {
    let channel = gateway.verifications.channel(route, &[]).await.ok()?;
    let upstream = gateway.live().upstreams.get(&route.upstream.name)?.clone();
    let query = [("nonce", nonce), ("model", route.upstream_model.as_str())];
    let headers = [(DEPTH, HeaderValue::from(u16::from(depth)))];
    let mut answer = upstream.get(PATH, &query, &headers, &channel, PATIENCE).await.ok()?;
    if answer.status != http::StatusCode::OK {
        return None;
    }
    let mut share = gateway.bodies.share(1);
    let report = answer.whole(MAX_REPORT_BYTES, PATIENCE, &mut share).await.ok()?;
    let report: Report = serde_json::from_slice(&report).ok()?;
    let gpus: Gpus = serde_json::from_str(&report.nvidia_payload).ok()?;
    (gpus.nonce == nonce && !gpus.evidence_list.is_empty()).then_some(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_request_goes_is_only_lowered() {
        let of =
            |value: &'static str| depth(&HeaderMap::from_iter([(DEPTH, HeaderValue::from_static(value))]));
        assert_eq!((depth(&HeaderMap::new()), of("3"), of("0"), of("8")), (8, 3, 0, 8));
        assert_eq!((of("9"), of("255")), (8, 8));
        assert_eq!((of("256"), of("-1"), of("x"), of("")), (0, 0, 0, 0));
    }

    #[test]
    fn the_form_of_none() {
        assert_eq!(Gpus::none("n").payload(), r#"{"nonce":"n","evidence_list":[],"arch":"HOPPER"}"#);
    }
}
