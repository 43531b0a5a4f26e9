//! The control plane: management API, operations and their store, and the fleet of nodes.
//!
//! It belongs to the operator's side: it may lie and may fail, and it holds no tenant secret. What it
//! answered with success is durable. See [`ControlPlane::start`].

pub mod api;
mod audit;
mod billing;
pub mod clock;
mod dns;
mod evidence;
mod first_account;
pub mod fleet;
pub mod governance;
mod housekeeping;
pub mod inference;
pub mod kms;
mod metering;
pub mod openid;
pub mod operations;
pub mod os_images;
pub mod people;
pub mod proof_of_cloud;
mod replicas;
pub mod rollouts;
mod scheduled_deletes;
mod sealing;
mod start;
pub mod store;
mod trust;
pub mod webhooks;

pub use api::{InvalidClient, OauthClient};
pub use first_account::{AccountError, FirstKey};
pub use start::{App, Config, ControlPlane, DEFAULT_REQUESTS_PER_MINUTE, StartError};
pub use trust::{DEVELOPMENT_ROOT_FILE, TrustError};
