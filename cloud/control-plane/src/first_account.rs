//! The first administrator of a new installation, and administrators' keys.

use cloister_management_api::KeyScope;
use sha2::{Digest, Sha256};

use crate::audit::{self, INSTALLATION, System};
use crate::clock::{Clock, NoRandomness, Random};
use crate::store::{Change, NewApiKey, Store, StoreError};

/// Why an administrator's key was not made.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness for the key.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// Every administrator is gone.
    #[error("this installation has no administrator")]
    NoAdministrator,
}

/// The administrator's key of a new installation; exists only in this value.
#[derive(Clone)]
pub struct FirstKey(String);

impl FirstKey {
    /// The key itself, to be shown once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// On an empty store: an administrator, a workspace and a key for both.
pub(crate) async fn make_first_account(
    store: &Store,
    clock: &Clock,
    random: Random,
) -> Result<Option<FirstKey>, AccountError> {
    if store.user_count().await? > 0 {
        return Ok(None);
    }
    let work = first_account(store, clock, random);
    audit::as_system(System::Operator, ("create_token", "api_key"), INSTALLATION, clock, work).await
}

async fn first_account(
    store: &Store,
    clock: &Clock,
    random: Random,
) -> Result<Option<FirstKey>, AccountError> {
    let now_ms = clock.now_ms();
    let mut change = store.change().await?;
    let user = match change.insert_user("admin", "admin@localhost", "admin", now_ms).await {
        // Another replica starts on the same empty store and was first.
        Err(error) if error.is_duplicate() => return Ok(None),
        user => user?,
    };
    let workspace = change.insert_workspace("main", "Main", random.bytes()?, user, now_ms).await?;
    let key = insert_key(&mut change, (user, workspace), "first key", now_ms, random).await?;
    change.commit().await?;
    Ok(Some(key))
}

pub(crate) async fn insert_key(
    change: &mut Change,
    (user_id, workspace_id): (i64, i64),
    name: &str,
    now_ms: i64,
    random: Random,
) -> Result<FirstKey, AccountError> {
    let key = format!("phak_{}", hex::encode(random.bytes::<32>()?));
    let new_key = NewApiKey {
        user_id,
        workspace_id,
        name: name.to_owned(),
        key_hash: hex::encode(Sha256::digest(&key)),
        key_prefix: key.chars().take(12).collect(),
        scope: KeyScope::Admin,
        default_version: "2026-01-21".to_owned(),
        expires_at_ms: None,
    };
    change.insert_api_key(&new_key, now_ms).await?;
    Ok(FirstKey(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::embedded;

    #[tokio::test]
    async fn the_first_key_is_what_the_first_record_is_about() {
        let dir = tempfile::tempdir().unwrap();
        let store = embedded(dir.path()).await;
        let clock = Clock::manual(jiff::Timestamp::UNIX_EPOCH);
        let key = make_first_account(&store, &clock, Random).await.unwrap().unwrap();
        assert!(make_first_account(&store, &clock, Random).await.unwrap().is_none());
        let records = store.audit_stretch(INSTALLATION, 0, i64::MAX, 10).await.unwrap();
        assert_eq!(records.len(), 1);
        let record = &records[0];
        assert_eq!((record.operation.as_str(), record.target.kind.as_str()), ("create_token", "api_key"));
        assert_eq!((record.actor.name.as_deref(), &record.before), (Some("operator"), &None));
        assert!(record.after.is_some());
        assert!(!serde_json::to_string(record).unwrap().contains(key.reveal()));
    }
}
