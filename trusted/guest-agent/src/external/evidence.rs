//! Evidence for the outside.

use std::sync::Arc;

use http::{StatusCode, Uri};
use http_body_util::Either;

use super::External;
use super::respond::{Answer, text};
use crate::attestation::Attestation;
use crate::guest_api::answer::{ApiError, answer};
use crate::guest_api::message::Message;
use crate::guest_api::methods::{self, Method};
use crate::guest_api::{keys, quotes};

/// To those who may not see measurements.
pub(super) const PRIVATE: &str = "this application keeps its measurements private\n";

impl External {
    /// The whole document. A quote is slow, so few are made for the outside at a time.
    pub(super) async fn evidence(&self, uri: &Uri) -> Answer {
        let Some(attestation) = self.measured() else { return not_yet() };
        let Ok(_slot) = self.quotes.try_acquire() else { return busy() };
        let message = Message::from_query(uri.query().unwrap_or_default());
        json(&quotes::attestation_for_outside(&attestation, &message).await)
    }

    /// The methods that the public platform serves to the outside, whether with a query or a body.
    pub(super) async fn worker(&self, uri: &Uri, body: &[u8], may_see_evidence: bool) -> Answer {
        let Some(attestation) = self.measured() else { return not_yet() };
        let path = uri.path();
        json(&match Method::at(path) {
            Ok(Method::GetAttestationForAppKey) if !may_see_evidence => {
                return text(StatusCode::FORBIDDEN, PRIVATE);
            }
            Ok(Method::GetAttestationForAppKey) => {
                let Ok(_slot) = self.quotes.try_acquire() else { return busy() };
                let message = if body.is_empty() {
                    Ok(Message::from_query(uri.query().unwrap_or_default()))
                } else {
                    Message::from_json(body)
                };
                match message {
                    Ok(message) => keys::attestation_for_app_key(&attestation, &message).await,
                    Err(error) => Err(error.into()),
                }
            }
            Ok(Method::Info) => Ok(attestation.info(true).await),
            Ok(Method::Version) => Ok(methods::version()),
            Ok(_) => Err(ApiError::Unknown(path.trim_start_matches("/prpc/").chars().take(100).collect())),
            Err(error) => Err(error),
        })
    }

    fn measured(&self) -> Option<Arc<Attestation>> {
        self.attestation.borrow().clone()
    }
}

fn busy() -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, "other quotes are being made; try again\n")
}

fn not_yet() -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, "this boot is not measured yet; try again\n")
}

fn json(result: &Result<serde_json::Value, ApiError>) -> Answer {
    answer(result).map(Either::Left)
}
