//! Connections that wait for their next request.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use url::Url;

use crate::connect::Connection;

/// Connections that are kept for one server.
const MAX_PER_SERVER: usize = 16;
/// Connections that are kept in total.
const MAX_IDLE: usize = 256;

/// What a connection can be used for again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(url::Origin);

impl Key {
    pub(crate) fn of(url: &Url) -> Self {
        Self(url.origin())
    }
}

/// Idle connections by server.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<HashMap<Key, Vec<Connection>>>);

impl Pool {
    /// The connection that was used last and is open.
    pub(crate) fn take(&self, key: &Key) -> Option<Connection> {
        let mut servers = self.lock();
        let idle = servers.get_mut(key)?;
        let found = std::iter::from_fn(|| idle.pop()).find(Connection::is_ready);
        if idle.is_empty() {
            servers.remove(key);
        }
        found
    }

    /// Keeps a connection, if there is room.
    pub(crate) fn put(&self, key: Key, connection: Connection) {
        let mut servers = self.lock();
        if servers.values().map(Vec::len).sum::<usize>() >= MAX_IDLE {
            servers.values_mut().for_each(|idle| idle.retain(Connection::is_ready));
            servers.retain(|_, idle| !idle.is_empty());
        }
        let total = servers.values().map(Vec::len).sum::<usize>();
        let idle = servers.entry(key).or_default();
        if total < MAX_IDLE && idle.len() < MAX_PER_SERVER {
            idle.push(connection);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<Connection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
