//! The key management service: releases keys to code that proved itself.
//!
//! A KMS begins in onboarding: plain HTTP, until it has made its first root or taken over those of another
//! KMS, and somebody said that this is finished. From then on it releases keys, to callers whose evidence
//! was verified and whom the policy lets in, and records everything in its log.
//!
//! | Folder | Holds |
//! |---|---|
//! | `state` | roots, policy, who has data under which root: one sealed file, changed in one step |
//! | `policy` | who may have keys: the built-in rules, or somebody who is asked |
//! | `onboarding` | the first root, or those of another KMS |
//! | `rotation` | new roots and the end of old ones |
//! | `door` | who comes in: evidence before everything else |
//! | `release` | what callers with evidence get |
//! | `directory` | what anybody gets, and the administration |

mod clock;
mod config;
mod directory;
mod door;
mod failure;
mod onboarding;
#[cfg(test)]
mod owner;
mod policy;
mod release;
mod rotation;
mod secret_json;
mod start;
mod state;
mod trust;

pub use clock::NoRandomness;
pub use cloister_agent_client::AgentError;
pub use config::{Authorization, Config};
pub use directory::AdminTokenError;
pub use door::{OpenError, OwnCertificateError};
pub use policy::{InvalidRules, WebhookError};
pub use start::{Kms, StartError};
pub use state::{
    Boundaries, InvalidRoots, MakeRootError, RecoveryError, SealError, StateError, UnsealError, WriteError,
};
pub use trust::TrustError;
