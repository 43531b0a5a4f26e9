//! `/.well-known/oauth-authorization-server` (RFC 8414)

use axum::Json;
use axum::extract::State;
use cloister_management_api::KeyScope;
use serde_json::{Value, json};
use url::Url;

use crate::api::{Api, PREFIX};

/// What this server calls itself: its public URL without a path.
pub(super) fn issuer(public_url: &Url) -> String {
    public_url.origin().ascii_serialization()
}

/// Where everything is.
pub(crate) async fn metadata(State(api): State<Api>) -> Json<Value> {
    let issuer = issuer(&api.public_url);
    let scopes = [KeyScope::Inference, KeyScope::Read, KeyScope::Deploy, KeyScope::Admin];
    Json(json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/oauth/authorize"),
        "token_endpoint": format!("{issuer}{PREFIX}/token"),
        "revocation_endpoint": format!("{issuer}{PREFIX}/oauth/revoke"),
        "scopes_supported": scopes.map(KeyScope::as_str),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "authorization_response_iss_parameter_supported": true,
    }))
}
