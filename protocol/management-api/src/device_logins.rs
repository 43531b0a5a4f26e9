//! Letting a device in by a person at another one: OAuth 2.0 Device Authorization Grant (RFC 8628).

use cloister_app_compose::members;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::requests::Parsed;
use crate::scopes::KeyScope;

/// The grant type of [`DeviceTokenRequest`] (RFC 8628 section 3.4).
pub const DEVICE_CODE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

members! {
    /// Body of `POST /auth/device/code`, as JSON or as a form.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct DeviceCodeRequest {
        /// What the device calls itself, 1 to 100 characters.
        pub client_id: String,
        /// What it asks for: `inference`, `read`, `deploy` or `admin`; words of its own stand for `deploy`. Whoever
        /// approves decides what it gets.
        pub scope: Option<String>,
    }
}

/// A device that waits for somebody to let it in (RFC 8628 section 3.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceCode {
    /// What the device asks with; a secret.
    pub device_code: String,
    /// What a person types, `XXXX-XXXX`.
    pub user_code: String,
    /// Where a person goes.
    pub verification_uri: String,
    /// The same with the code in it.
    pub verification_uri_complete: String,
    /// Seconds until the codes work no longer.
    pub expires_in: u32,
    /// Seconds between two questions of the device.
    pub interval: u32,
}

members! {
    /// Body of `POST /auth/device/token`, as JSON or as a form.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct DeviceTokenRequest {
        /// The device's code.
        pub device_code: String,
        /// `urn:ietf:params:oauth:grant-type:device_code`
        pub grant_type: String,
    }
}

/// What a device that was let in gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceToken {
    /// An API key.
    pub access_token: String,
    /// `bearer`
    pub token_type: String,
    /// Seconds until it works no longer.
    pub expires_in: u32,
    /// What it may do, which whoever let the device in decided.
    pub scope: KeyScope,
}

/// Why a device gets nothing, or not yet (RFC 8628 section 3.5, RFC 6749 section 5.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceRefusal {
    /// `authorization_pending`, `slow_down`, `expired_token`, `access_denied`, `invalid_request` or
    /// `unsupported_grant_type`.
    pub error: String,
    /// The same for people.
    pub error_description: String,
    /// Both again, where other clients look for them.
    pub detail: DeviceRefusalDetail,
}

/// See [`DeviceRefusal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceRefusalDetail {
    /// As above.
    pub error: String,
    /// As above.
    pub error_description: String,
}

/// A device that waits, as whoever decides sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingDevice {
    /// What it shows.
    pub user_code: String,
    /// What it calls itself. Nobody checked that.
    pub client_id: String,
    /// What it asks to be allowed; `deploy`, if it asked in words of its own.
    pub scope: KeyScope,
    /// When it waits no longer.
    pub expires_at: Timestamp,
}

members! {
    /// Body of `POST /auth/device/decision`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct DeviceDecisionRequest {
        /// What the device shows; case, spaces and dashes do not matter.
        pub user_code: String,
        /// Whether it gets a key of the workspace.
        pub approve: bool,
        /// What the key may do: `inference`, `read`, `deploy` or `admin`. Left out: `deploy`, or less if the device
        /// asks for less, or the key of this request may less.
        #[schema(value_type = Option<KeyScope>)]
        pub scope: Option<Parsed<KeyScope>>,
    }
}

/// What was decided on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceDecision {
    /// What it calls itself.
    pub client_id: String,
    /// Whether it was let in.
    pub approved: bool,
    /// What its key may do; none when it was not let in.
    pub scope: Option<KeyScope>,
}
