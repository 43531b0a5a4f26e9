//! The keys of the configuration: which models they may use, how much in a minute, and how much in all.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rust_decimal::Decimal;

use super::credit::{Credit, NoCredit, Reservation};
use super::estimate::estimate;
use super::features::Features;
use super::{Admission, Ask, KeyHash};
use crate::accounting::{Limits, Tokens, Window};
use crate::config::{GatewayConfig, KeyConfig};
use crate::error::{GatewayError, Kind};
use crate::record::{Store, StoreError};

/// Seconds after which a request that found the credit set aside may come again.
const RETRY_S: u64 = 1;

/// The keys that hold now.
#[derive(Debug)]
pub struct Keys {
    store: Store,
    table: RwLock<Arc<Table>>,
    timer: Timer,
}

/// By hash: who guesses learns nothing from how long a hash of a guess takes to be looked up.
type Table = HashMap<KeyHash, Arc<Key>>;

#[derive(Debug)]
struct Key {
    config: KeyConfig,
    limits: Arc<Limits>,
    credit: Arc<Credit>,
}

/// Time since some beginning; it never steps.
#[derive(Clone)]
struct Timer(Arc<dyn Fn() -> Duration + Send + Sync>);

impl fmt::Debug for Timer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Timer")
    }
}

impl Keys {
    /// The keys of a configuration. What they have spent is in the store.
    #[must_use]
    pub fn new(config: &GatewayConfig, store: Store) -> Self {
        let began = Instant::now();
        Self::with_timer(config, store, move || began.elapsed())
    }

    pub(super) fn with_timer(
        config: &GatewayConfig,
        store: Store,
        now: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let keys = Self { store, table: RwLock::default(), timer: Timer(Arc::new(now)) };
        keys.configure(config);
        keys
    }

    /// Other keys hold. What those that stay have used of their limits and what is set aside of their credit stays;
    /// a limit that is another one begins anew.
    pub fn configure(&self, config: &GatewayConfig) {
        let before = Arc::clone(&self.table.read());
        let keys = config.keys.iter().filter_map(|key| {
            let mut hash = [0; 32];
            hex::decode_to_slice(&key.sha256, &mut hash).ok()?;
            let hash = KeyHash(hash);
            Some((hash, Arc::new(Key::new(key, before.get(&hash).map(AsRef::as_ref)))))
        });
        *self.table.write() = Arc::new(keys.collect());
    }

    fn key(&self, hash: KeyHash) -> Result<Arc<Key>, GatewayError> {
        let key = self.table.read().get(&hash).cloned();
        key.ok_or_else(|| GatewayError::new(Kind::Authentication, "Invalid API key"))
    }

    pub(super) fn name(&self, hash: KeyHash) -> Option<String> {
        self.table.read().get(&hash).map(|key| key.config.name.clone())
    }

    pub(super) fn identify(&self, hash: KeyHash) -> Result<(), GatewayError> {
        self.key(hash).map(drop)
    }

    pub(super) fn count_refused(&self, hash: KeyHash) -> Result<(), GatewayError> {
        self.key(hash)?.limits.begin((self.timer.0)()).map(drop).map_err(GatewayError::limited)
    }

    pub(super) fn admit(&self, ask: &Ask<'_>) -> Result<Admission, GatewayError> {
        let key = self.key(ask.key)?;
        if key.config.models.as_ref().is_some_and(|models| !models.iter().any(|model| model == ask.model)) {
            return Err(GatewayError::new(Kind::ModelNotAllowed, "This API key may not use this model"));
        }
        let left = key.limits.begin((self.timer.0)()).map_err(GatewayError::limited)?;
        let reserved = self.reserve(&key, ask)?.map(Arc::new);
        let virtual_key_id = Some(key.config.name.clone());
        Ok(Admission { virtual_key_id, left, reserved, ..Admission::default() })
    }

    fn reserve(&self, key: &Key, ask: &Ask<'_>) -> Result<Option<Reservation>, GatewayError> {
        let Some(limit) = key.config.credit else { return Ok(None) };
        let outcome = key.credit.reserve(limit, expected(ask), || self.store.spent(ask.key));
        granted(outcome).map(Some)
    }

    pub(super) fn raise(&self, ask: &Ask<'_>, admission: &mut Admission) -> Result<(), GatewayError> {
        let (Some(limit), Some(reserved)) = (self.key(ask.key)?.config.credit, &admission.reserved) else {
            return Ok(());
        };
        let outcome = reserved.raise(limit, expected(ask), || self.store.spent(ask.key));
        admission.reserved = Some(granted(outcome)?);
        Ok(())
    }

    pub(super) fn used(&self, hash: KeyHash, tokens: Tokens) {
        if let Ok(key) = self.key(hash) {
            key.limits.end(tokens.total(), (self.timer.0)());
        }
    }
}

fn expected(ask: &Ask<'_>) -> Decimal {
    estimate(&Features::of(ask.surface, ask.body), ask.known, ask.dearest, ask.keeps_limits)
}

/// What the client gets where nothing is set aside.
fn granted<T>(outcome: Result<Result<T, NoCredit>, StoreError>) -> Result<T, GatewayError> {
    let outcome = outcome.map_err(|error| {
        tracing::error!(%error, "what a key has spent cannot be read");
        GatewayError::new(Kind::Unavailable, "The gateway's records cannot be read at the moment")
    })?;
    outcome.map_err(|refusal| match refusal {
        NoCredit::Spent => GatewayError::new(Kind::NoCredit, "The credit of this API key is used up"),
        NoCredit::SetAside => GatewayError {
            retry_after: Some(RETRY_S),
            ..GatewayError::new(
                Kind::RateLimited,
                "Requests of this API key that are under way may use up its credit; ask again when they are over",
            )
        },
    })
}

impl Key {
    fn new(config: &KeyConfig, before: Option<&Self>) -> Self {
        let limits = |key: &KeyConfig| (key.requests_per_minute, key.tokens_per_minute);
        let same = before.filter(|before| limits(&before.config) == limits(config));
        let fresh = || {
            Arc::new(Limits {
                requests: config.requests_per_minute.map(|limit| Window::new(limit.into())),
                tokens: config.tokens_per_minute.map(Window::new),
            })
        };
        Self {
            config: config.clone(),
            limits: same.map_or_else(fresh, |before| Arc::clone(&before.limits)),
            credit: before.map(|before| Arc::clone(&before.credit)).unwrap_or_default(),
        }
    }
}
