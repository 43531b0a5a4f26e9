//! Pages for people with an account: logging in, the account, its second factor. They are written by the server and need
//! no script. What they are made of is in `crate::people`.
//!
//! Whoever logged in has a session: a random cookie of which the database has the hash. A form of such a page holds a
//! value that is made of the cookie, and no form is taken from another site.

mod account;
pub(in crate::api) mod choice;
mod cookies;
mod device;
mod form;
mod guess;
mod link;
mod login;
mod markup;
mod openid;
mod second_factor;
mod session;

pub(in crate::api) use form::{Fields, from_this_site};
pub(in crate::api) use guess::{Refusal, Target, presented, take};
pub(in crate::api) use markup::Page;
pub(in crate::api) use session::Person;

use std::num::NonZeroU32;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::routing::{get, post};

use super::Api;

/// Logins and other guesses from one address.
pub(crate) const GUESSES_PER_MINUTE: Option<NonZeroU32> = NonZeroU32::new(30);
/// Forms hold names, passwords and codes.
const MAX_FORM_BYTES: usize = 16 * 1024;

/// The pages.
pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/login", get(login::page).post(login::log_in))
        .route("/login/openid", get(openid::begin))
        .route(crate::openid::CALLBACK, get(openid::callback))
        .route("/login/openid/code", get(openid::code_page).post(openid::code))
        .route("/logout", post(login::log_out))
        .route("/account", get(account::page))
        .route("/account/password", post(account::set_password))
        .route("/account/link/{token}", get(link::page).post(link::set_password))
        .route("/account/second-factor", get(second_factor::page).post(second_factor::begin))
        .route("/account/second-factor/confirm", post(second_factor::confirm))
        .route("/account/second-factor/remove", post(second_factor::remove))
        .route("/account/backup-codes", post(second_factor::renew_backup_codes))
        .route("/device", get(device::page).post(device::look))
        .route("/device/decision", post(device::decide))
        .layer(from_fn(from_this_site))
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
}
