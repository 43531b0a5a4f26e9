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
use crate::guest_api::quotes;

impl External {
    /// The whole document. A quote is slow, so few are made for the outside at a time.
    pub(super) async fn evidence(&self, uri: &Uri) -> Answer {
        let Some(attestation) = self.measured() else { return not_yet() };
        let Ok(_slot) = self.quotes.try_acquire() else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "other quotes are being made; try again\n");
        };
        let message = Message::from_query(uri.query().unwrap_or_default());
        json(&quotes::attestation_for_outside(&attestation, &message).await)
    }

    /// The methods that the public platform serves to the outside.
    pub(super) async fn worker(&self, path: &str) -> Answer {
        let Some(attestation) = self.measured() else { return not_yet() };
        json(&match Method::at(path) {
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

fn not_yet() -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, "this boot is not measured yet; try again\n")
}

fn json(result: &Result<serde_json::Value, ApiError>) -> Answer {
    answer(result).map(Either::Left)
}
