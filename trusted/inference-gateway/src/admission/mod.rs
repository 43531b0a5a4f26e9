//! Whether a request may be answered: who asks, what is left of limits and credit, and which routes and prices hold.
//!
//! The key itself goes no further than its hash.

mod consult;
mod credit;
mod estimate;
mod features;
mod keys;
mod payloads;
mod prefix;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::Arc;

use rust_decimal::Decimal;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::accounting::{Left, Tokens};
use crate::config::{ModelConfig, Pricing};
use crate::error::GatewayError;
use crate::surface::Surface;

pub use consult::{Begun, ControlPlane, Hooks, HooksError};
pub use credit::Reservation;
pub use keys::Keys;

/// SHA-256 of a bearer key: what owners of requests are told apart by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// Of a key.
    #[must_use]
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }
}

/// 64 lower-case hex digits.
impl fmt::Display for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// What is asked before a request is answered.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Who asks.
    pub key: KeyHash,
    /// The gateway's id of the request.
    pub request_id: &'a str,
    /// How it came in.
    pub surface: Surface,
    /// The public model id.
    pub model: &'a str,
    /// What is told about the model.
    pub known: &'a ModelConfig,
    /// Prices that no route goes beyond which the request may take.
    pub dearest: &'a Pricing,
    /// Whether all its routes are known to keep a limit on what comes out, whichever of its two names a request uses.
    pub keeps_limits: bool,
    /// The client's `provider` member, as it was sent.
    pub provider: Option<&'a RawValue>,
    /// Whether the request came in by a host name that serves confidential models only.
    pub is_tee_host: bool,
    /// Whether the client encrypts what it says: then nothing of it is told, not even a hash.
    pub is_encrypted: bool,
    /// The body, to tell what the request needs; nothing of it leaves the gateway, but for a hash of how it begins where the
    /// operator wants that.
    pub body: &'a [u8],
}

/// Leave to answer.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// Whose key it is, as a control plane calls them.
    pub user_id: Option<String>,
    /// The key, as a control plane calls it, or the configuration.
    pub virtual_key_id: Option<String>,
    /// How it is paid for, such as `regular`.
    pub spend_mode: Option<String>,
    /// Sent to upstreams as `x-user-tier`.
    pub user_tier: Option<String>,
    /// Prices that hold instead of those of the routes.
    pub pricing: Option<Pricing>,
    /// Ids of the routes to try, best first, instead of the catalogue's own choice.
    pub routes: Option<Vec<String>>,
    /// What is left of the key's limits, for the answer's headers.
    pub left: Left,
    /// Opaque key of affinity between like prompts; told back in the record.
    pub prefix_hash: Option<String>,
    /// Credit that is set aside until what the request cost is recorded. It is free again when the last clone of this
    /// is dropped.
    pub reserved: Option<Arc<Reservation>>,
    /// The same where a control plane sets it aside, which is told for as long that the request is under way.
    pub begun: Option<Arc<Begun>>,
}

/// Who decides.
#[derive(Debug)]
pub enum Control {
    /// The keys of the configuration.
    Keys(Keys),
    /// A control plane, by its `consult` hooks.
    ControlPlane(ControlPlane),
}

impl Control {
    /// Decides. `Err` is what the client gets.
    pub async fn admit(&self, ask: &Ask<'_>) -> Result<Admission, GatewayError> {
        match self {
            Self::Keys(keys) => keys.admit(ask),
            Self::ControlPlane(control_plane) => control_plane.admit(ask).await,
        }
    }

    /// Sets more aside where the decrypted body of a request that was admitted may cost more than was thought of it
    /// encrypted. `Err` is what the client gets. A control plane was asked once, by what could be seen then.
    pub fn raise(&self, ask: &Ask<'_>, admission: &mut Admission) -> Result<(), GatewayError> {
        match self {
            Self::Keys(keys) => keys.raise(ask, admission),
            Self::ControlPlane(_) => Ok(()),
        }
    }

    /// Whether somebody has this key: what lists of models ask, which name no model. Fails like [`Self::admit`].
    pub async fn identify(&self, key: KeyHash) -> Result<(), GatewayError> {
        match self {
            Self::Keys(keys) => keys.identify(key),
            Self::ControlPlane(control_plane) => control_plane.identify(key).await,
        }
    }

    /// The same, of somebody who sent a request that is refused: it counts as one of the key's. Fails also where there
    /// may be no more of them now.
    pub async fn count_refused(&self, key: KeyHash, request_id: &str) -> Result<(), GatewayError> {
        match self {
            Self::Keys(keys) => keys.count_refused(key),
            Self::ControlPlane(control_plane) => control_plane.count_refused(key, request_id).await,
        }
    }

    /// Whether somebody is known to have this key, or known by now to have none: what is asked before any of a body is
    /// kept. A control plane is asked only of keys that it has not just known. Fails like [`Self::identify`].
    pub async fn recognise(&self, key: KeyHash) -> Result<(), GatewayError> {
        match self {
            Self::Keys(keys) => keys.identify(key),
            Self::ControlPlane(control_plane) => control_plane.recognise(key).await,
        }
    }

    /// What a key is called, if it is one of the configuration.
    pub fn name(&self, key: KeyHash) -> Option<String> {
        match self {
            Self::Keys(keys) => keys.name(key),
            Self::ControlPlane(_) => None,
        }
    }

    /// Counts what an answer used against the key's limits, or what it cost among what a control plane is to be told;
    /// recorded durably by [`crate::record::Store`].
    pub fn used(&self, key: KeyHash, tokens: Tokens, cost: Decimal) {
        match self {
            Self::Keys(keys) => keys.used(key, tokens),
            Self::ControlPlane(control_plane) => control_plane.spent(cost),
        }
    }

    /// Whether somebody else sets credit aside for a request that is admitted, until it is told how the request ended.
    #[must_use]
    pub const fn is_told_of_ends(&self) -> bool {
        matches!(self, Self::ControlPlane(_))
    }
}
