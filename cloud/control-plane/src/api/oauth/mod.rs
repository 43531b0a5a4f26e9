//! OAuth 2.0 for applications that act in the name of people: authorization code with PKCE (RFC 6749, RFC 7636) for
//! public clients, which this installation knows by their redirect URIs.
//!
//! What an application gets is an API key of the person that works for an hour, and a refresh token to renew it with.
//! The key is listed, and ended, with the person's other keys.

pub(crate) mod authorize;
mod clients;
pub(crate) mod metadata;
pub(crate) mod revoke;
pub(crate) mod step_up;
pub(crate) mod token;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::routing::{get, post};

pub use clients::{Client, InvalidClient};

use super::Api;
use super::people::from_this_site;

/// Forms and queries are short.
const MAX_FORM_BYTES: usize = 16 * 1024;

/// What is not part of the described interface: the page, the metadata, and the token endpoint at the place of which
/// public descriptions speak.
pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/oauth/authorize", get(authorize::page).post(authorize::decide))
        .layer(from_fn(from_this_site))
        .route("/.well-known/oauth-authorization-server", get(metadata::metadata))
        .route("/token", post(token::token))
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
}
