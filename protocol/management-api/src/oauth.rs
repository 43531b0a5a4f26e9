//! Applications that act in the name of people: OAuth 2.0 (RFC 6749, RFC 7009).

use cloister_app_compose::members;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::scopes::KeyScope;

members! {
    /// Body of `POST /token`, a form or JSON.
    #[derive(Clone, PartialEq, Eq, ToSchema)]
    pub struct OauthTokenRequest {
        /// `authorization_code` or `refresh_token`
        pub grant_type: String,
        /// The application.
        pub client_id: String,
        /// Of `authorization_code`: the code of the redirect.
        pub code: Option<String>,
        /// Of `authorization_code`: the same text as in the request for the code.
        pub redirect_uri: Option<String>,
        /// Of `authorization_code`: what the challenge is the SHA-256 of, 43 to 128 characters (RFC 7636).
        pub code_verifier: Option<String>,
        /// Of `refresh_token`: the newest refresh token.
        pub refresh_token: Option<String>,
        /// Of `refresh_token`: a scope that is not more than what was allowed; without it the same.
        pub scope: Option<String>,
    }
}

/// What an application acts with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OauthToken {
    /// An API key, sent as a bearer token.
    pub access_token: String,
    /// `Bearer`
    pub token_type: String,
    /// Seconds until the access token works no longer.
    pub expires_in: u32,
    /// What the next ones are had with; works once, for 30 days.
    pub refresh_token: String,
    /// What the access token may do.
    pub scope: KeyScope,
}

/// Why an application gets nothing (RFC 6749 section 5.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OauthError {
    /// `invalid_request`, `invalid_grant`, `invalid_scope` or `unsupported_grant_type`.
    pub error: String,
    /// The same for people.
    pub error_description: String,
}

members! {
    /// Body of `POST /oauth/revoke`, a form or JSON.
    #[derive(Clone, PartialEq, Eq, ToSchema)]
    pub struct OauthRevokeRequest {
        /// An access token or a refresh token.
        pub token: String,
        /// The application.
        pub client_id: String,
        /// Not looked at.
        pub token_type_hint: Option<String>,
    }
}

members! {
    /// Body of `POST /auth/step-up`.
    #[derive(Clone, PartialEq, Eq, ToSchema)]
    pub struct StepUpRequest {
        /// What the authenticator shows, or a backup code.
        pub totp_code: String,
    }
}

/// That a code was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SteppedUp {
    /// Until then no other code is asked for.
    pub until: Timestamp,
}
