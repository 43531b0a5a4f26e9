//! Users, as administrators of the installation see them.

use cloister_app_compose::members;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::UserId;

/// A user, and how that one logs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdminUser {
    /// Id.
    pub id: UserId,
    /// Login name.
    pub username: String,
    /// Mail address; may be empty.
    pub email: String,
    /// `admin` or `user`.
    pub role: String,
    /// Whether there is a password.
    pub has_password: bool,
    /// Whether a code of an authenticator belongs to every login.
    pub totp_enabled: bool,
    /// What the OpenID provider of the installation calls the user, if that one logs in by it.
    pub openid_subject: Option<String>,
    /// Slugs of the workspaces that the user is a member of.
    pub workspaces: Vec<String>,
    /// Creation time.
    pub created_at: Timestamp,
}

members! {
    /// Body of `POST /admin/users`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct CreateUserRequest {
        /// Login name: 1 to 39 characters, lower-case letters, digits, `-`, `_` and `.`, the first of them a letter or
        /// a digit.
        pub username: String,
        /// Mail address, at most 254 characters.
        pub email: Option<String>,
        /// Whether the user administers the installation; no unless it is said.
        pub administers: Option<bool>,
        /// What the OpenID provider of the installation calls the user, 1 to 255 printable ASCII characters. Then the user
        /// logs in by it, and there is no link.
        pub openid_subject: Option<String>,
        /// Slug of a workspace to become a member of; without it the user gets a workspace of the login name.
        pub workspace: Option<String>,
    }
}

members! {
    /// Body of `POST /admin/users/{username}/link`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
    pub struct UserLinkRequest {
        /// Whether the second factor and the backup codes are removed, for somebody who lost them.
        pub remove_second_factor: Option<bool>,
    }
}

members! {
    /// Body of `PUT /admin/users/{username}/openid`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct UserOpenidRequest {
        /// What the OpenID provider of the installation calls the user, 1 to 255 printable ASCII characters; null or
        /// nothing lets the user log in by it no longer.
        pub openid_subject: Option<String>,
    }
}

/// A user, with a link by which that one sets a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserLink {
    /// The user.
    pub user: AdminUser,
    /// The page; whoever has it sets the password. It works once, and only the newest of a user works. Null for a user who
    /// was made to log in by the OpenID provider.
    pub url: Option<String>,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
}
