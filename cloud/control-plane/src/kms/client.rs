//! What is asked of one service.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::AppId;
use cloister_kms_api::admin::{
    ALLOW_APP, AllowApp, GET_POLICY, PlatformRules, PolicyDocument, REVOKE_APP, SET_OWNERS, SetOwners,
};
use cloister_kms_api::{
    AppOwnersRequest, AppOwnersResponse, EnvPublicKeyRequest, EnvPublicKeyResponse, Meta, method,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::config::KmsConfig;
use super::error::KmsCallError;
use super::transport::Connection;
use crate::clock::Clock;

/// How long a public key is taken from memory; keys change with the root only.
const KEY_AGE: Duration = Duration::from_mins(1);
/// How long a failure is: those who ask at the same time fail together.
const FAILURE_AGE: Duration = Duration::from_secs(1);
/// Most applications whose key is remembered.
const MAX_KEYS: usize = 10_000;
/// Calls of this process that a service answers at a time.
const MAX_CALLS: usize = 32;

type Known = Option<(Instant, Result<EnvPublicKeyResponse, KmsCallError>)>;
type Keys = Mutex<HashMap<AppId, Arc<tokio::sync::Mutex<Known>>>>;

/// A client of one directory.
pub(super) struct Directory {
    connection: Connection,
    calls: Semaphore,
    keys: Keys,
}

impl Directory {
    pub(super) fn new(config: KmsConfig, clock: Clock) -> Self {
        Self {
            connection: Connection::new(config, clock),
            calls: Semaphore::new(MAX_CALLS),
            keys: Keys::default(),
        }
    }

    pub(super) const fn config(&self) -> &KmsConfig {
        self.connection.config()
    }

    /// What the service is, and the certificate (DER) that it showed.
    pub(super) async fn meta(&self) -> Result<(Meta, Vec<u8>), KmsCallError> {
        let _turn = self.calls.acquire().await;
        self.connection.call_seen(method::META).await
    }

    /// The key to seal an application's environment to, asked for within the last minute. Callers who ask for
    /// the same key share one call.
    pub(super) async fn env_public_key(&self, app_id: AppId) -> Result<EnvPublicKeyResponse, KmsCallError> {
        self.env_public_key_of(app_id, KEY_AGE).await
    }

    /// The same as it is now.
    pub(super) async fn current_env_public_key(
        &self,
        app_id: AppId,
    ) -> Result<EnvPublicKeyResponse, KmsCallError> {
        self.env_public_key_of(app_id, Duration::ZERO).await
    }

    async fn env_public_key_of(
        &self,
        app_id: AppId,
        max_age: Duration,
    ) -> Result<EnvPublicKeyResponse, KmsCallError> {
        let slot = {
            let mut keys = self.keys.lock();
            if keys.len() >= MAX_KEYS && !keys.contains_key(&app_id) {
                keys.clear();
            }
            Arc::clone(keys.entry(app_id).or_default())
        };
        let mut known = slot.lock().await;
        if let Some((at, answer)) = &*known
            && at.elapsed() < if answer.is_ok() { max_age } else { FAILURE_AGE }
        {
            return answer.clone();
        }
        let answer = self.ask_env_public_key(app_id).await;
        *known = Some((Instant::now(), answer.clone()));
        answer
    }

    async fn ask_env_public_key(&self, app_id: AppId) -> Result<EnvPublicKeyResponse, KmsCallError> {
        let _turn = self.calls.acquire().await;
        let request = EnvPublicKeyRequest { app_id };
        let answer: EnvPublicKeyResponse =
            self.connection.call(method::ENV_PUBLIC_KEY, Some(&request)).await?;
        let fits = answer.public_key.0.len() == 32 && answer.signature.0.len() == 65;
        let slug = &self.config().slug;
        fits.then_some(answer).ok_or_else(|| KmsCallError::Malformed { slug: slug.clone(), status: 200 })
    }

    /// Lets an application run a document; again is as good as once.
    pub(super) async fn allow_app(&self, allow: &AllowApp) -> Result<(), KmsCallError> {
        self.administer(ALLOW_APP, allow).await
    }

    /// Takes that back; again is as good as once.
    pub(super) async fn revoke_app(&self, revoke: &AllowApp) -> Result<(), KmsCallError> {
        self.administer(REVOKE_APP, revoke).await
    }

    /// Gives an application its owners; again is as good as once.
    pub(super) async fn set_owners(&self, owners: &SetOwners) -> Result<(), KmsCallError> {
        self.administer(SET_OWNERS, owners).await
    }

    /// Who owns an application, signed by the service's root.
    pub(super) async fn app_owners(&self, app_id: AppId) -> Result<AppOwnersResponse, KmsCallError> {
        let _turn = self.calls.acquire().await;
        self.connection.call(method::APP_OWNERS, Some(&AppOwnersRequest { app_id })).await
    }

    /// Its own rules for platforms and images.
    pub(super) async fn platform_rules(&self) -> Result<PlatformRules, KmsCallError> {
        let _turn = self.calls.acquire().await;
        let nothing = serde_json::json!({});
        let policy: PolicyDocument = self.connection.administer(GET_POLICY, &nothing).await?;
        Ok(policy.platform)
    }

    async fn administer(&self, call: &str, request: &impl Serialize) -> Result<(), KmsCallError> {
        let _turn = self.calls.acquire().await;
        self.connection.administer::<IgnoredAny>(call, request).await.map(|_| ())
    }
}
