//! What only the operator may do: look at figures and at what was used, and look at and replace upstreams.

mod settings;
mod usage;

use std::sync::{Arc, OnceLock};

use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::AUTHORIZATION;
use http::request::Parts;
use parking_lot::RwLock;

use crate::admission::KeyHash;
use crate::door;
use crate::error::{GatewayError, Kind};
use crate::gateway::Gateway;

pub use settings::{Settings, SettingsError};

/// What the operator is known by, and what it may change.
#[derive(Debug, Default)]
pub struct Office {
    token: RwLock<Option<KeyHash>>,
    settings: OnceLock<Settings>,
}

impl Office {
    /// Another token holds from now on; with none, the operator's endpoints are not there.
    pub fn set_token(&self, token: Option<KeyHash>) {
        *self.token.write() = token;
    }

    /// What the operator may change. The first one stays.
    pub fn set_settings(&self, settings: Settings) {
        let _ = self.settings.set(settings);
    }

    /// What the operator may change; nothing without a file.
    #[must_use]
    pub fn settings(&self) -> Option<&Settings> {
        self.settings.get()
    }
}

/// A caller with the operator's token.
#[derive(Debug, Clone, Copy)]
pub struct Operator;

impl FromRequestParts<Arc<Gateway>> for Operator {
    type Rejection = GatewayError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, GatewayError> {
        let token = (*gateway.office.token.read()).ok_or_else(absent)?;
        match door::key_of(&parts.headers) {
            Some(shown) if shown == token => Ok(Self),
            None if !parts.headers.contains_key(AUTHORIZATION) => {
                Err(GatewayError::new(Kind::Unauthorized, "The operator's token is needed"))
            }
            _ => Err(GatewayError::new(Kind::Forbidden, "This is not the operator's token")),
        }
    }
}

/// The endpoints for the operator.
pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/admin/upstreams", get(show).put(replace))
        .route("/v1/admin/usage", get(usage::show))
}

async fn show(_: Operator, State(gateway): State<Arc<Gateway>>) -> Result<Response, GatewayError> {
    let settings = gateway.office.settings().ok_or_else(absent)?;
    Ok(Json(settings.view().await).into_response())
}

async fn replace(
    _: Operator,
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Response, GatewayError> {
    let settings = gateway.office.settings().ok_or_else(absent)?;
    let (parts, body) = request.into_parts();
    let list = door::read_body(&parts.headers, body, &gateway.bodies).await?;
    settings.replace_upstreams(&gateway, &list).await.map_err(|error| match error {
        SettingsError::Config(_) | SettingsError::Upstreams(_) | SettingsError::Upstream(_) => {
            GatewayError::new(Kind::InvalidUpstreams, error.to_string())
        }
        SettingsError::Unreadable(..) | SettingsError::Unwritable(..) => {
            tracing::error!(%error, "upstreams could not be replaced");
            GatewayError::new(Kind::Internal, "The upstreams could not be kept")
        }
    })?;
    Ok(Json(settings.view().await).into_response())
}

fn absent() -> GatewayError {
    GatewayError::new(Kind::NotFound, "Nothing is at this path")
}
