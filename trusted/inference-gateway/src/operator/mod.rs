//! What only the operator may do: look at figures and at what was used, and look at and replace upstreams and models.

mod lists;
mod settings;
mod usage;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Json, Router};
use http::header::AUTHORIZATION;
use http::request::Parts;
use parking_lot::RwLock;

use crate::admission::KeyHash;
use crate::door;
use crate::error::{GatewayError, Kind, chain};
use crate::gateway::Gateway;

use lists::List;
pub use settings::{Reloaded, Settings, SettingsError, remark};

/// What the operator is known by, and what it may change.
#[derive(Debug, Default)]
pub struct Office {
    token: RwLock<Option<KeyHash>>,
    settings: OnceLock<Settings>,
    /// Whether the file is of no use as it is now.
    is_file_bad: AtomicBool,
}

impl Office {
    /// Another token holds from now on; with none, the operator's endpoints are not there.
    pub fn set_token(&self, token: Option<KeyHash>) {
        *self.token.write() = token;
    }

    /// Notes whether the file can be used as it is now.
    pub fn note_file(&self, is_good: bool) {
        self.is_file_bad.store(!is_good, Ordering::Relaxed);
    }

    /// Whether the file could be used when it was last looked at.
    #[must_use]
    pub fn is_file_good(&self) -> bool {
        !self.is_file_bad.load(Ordering::Relaxed)
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
    lists::ALL
        .into_iter()
        .fold(Router::new(), |router, list| {
            router.route(&format!("/v1/admin/{}", list.member), replaceable(list))
        })
        .route("/v1/admin/usage", get(usage::show))
}

/// Shows a list, and takes another one for it.
fn replaceable(list: &'static List) -> MethodRouter<Arc<Gateway>> {
    get(async move |_: Operator, State(gateway): State<Arc<Gateway>>| show(&gateway, list).await).put(
        async move |_: Operator, State(gateway): State<Arc<Gateway>>, request: Request| {
            replace(gateway, list, request).await
        },
    )
}

async fn show(gateway: &Gateway, list: &List) -> Result<Response, GatewayError> {
    let settings = gateway.office.settings().ok_or_else(absent)?;
    Ok(Json(settings.view(list).await).into_response())
}

async fn replace(
    gateway: Arc<Gateway>,
    list: &'static List,
    request: Request,
) -> Result<Response, GatewayError> {
    let (parts, body) = request.into_parts();
    let text = door::read_body(&parts.headers, body, gateway.bodies.share(1)).await?;
    // What is kept comes into force, also when whoever asked has left.
    let replacing = Arc::clone(&gateway);
    let replaced = tokio::spawn(async move {
        let settings = replacing.office.settings().ok_or_else(absent)?;
        settings.replace(&replacing, list, &text).await.map_err(|error| refusal(list, &error))
    });
    replaced.await.map_err(|_| GatewayError::new(Kind::Internal, "The gateway is stopping"))??;
    show(&gateway, list).await
}

fn refusal(list: &List, error: &SettingsError) -> GatewayError {
    match error {
        SettingsError::Unreadable(..) | SettingsError::Unwritable(..) => {
            tracing::error!(error = chain(error), list = list.member, "could not be replaced");
            GatewayError::new(Kind::Internal, format!("The {} could not be kept", list.member))
        }
        error => GatewayError::new(Kind::InvalidConfiguration(list.refusal), error.to_string()),
    }
}

fn absent() -> GatewayError {
    GatewayError::new(Kind::NotFound, "Nothing is at this path")
}
