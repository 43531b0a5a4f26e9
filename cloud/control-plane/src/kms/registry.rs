//! The services of the installation.

use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::{AppId, OsImageHash};
use cloister_kms_api::admin::{AllowApp, SetOwners};
use cloister_kms_api::{AppOwnersResponse, EnvPublicKeyResponse, Hex, Meta};
use cloister_management_api::{KmsContractId, KmsId, KmsInfo};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

use super::client::Directory;
use super::config::{InvalidKmsConfig, KmsConfig};
use super::contract::{self, KmsContract};
use super::error::KmsCallError;
use crate::clock::Clock;
use crate::store::{Store, StoreError};

/// How often each service is asked what it is; nothing but what answers show depends on it.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often one that did not answer is asked.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Version of a service that was never reached.
const UNKNOWN_VERSION: &str = "unknown";

/// A key management service.
pub struct Kms {
    id: i64,
    directory: Directory,
    /// What it said it is, last time.
    meta: Mutex<Option<Arc<Meta>>>,
}

/// Every key management service of the installation, the default one first.
#[derive(Default)]
pub struct Kmses(Vec<Arc<Kms>>);

/// Why the services cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KmsesError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] InvalidKmsConfig),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Kms {
    /// Number of its record.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn slug(&self) -> &str {
        &self.directory.config().slug
    }

    /// Where guests reach it.
    #[must_use]
    pub fn guest_url(&self) -> &Url {
        &self.directory.config().guest_url
    }

    /// The contract that decides which applications get keys from it.
    #[must_use]
    pub fn contract(&self) -> Option<KmsContract> {
        self.directory.config().contract
    }

    /// What it said it is, last time it was asked.
    #[must_use]
    pub fn known(&self) -> Option<Arc<Meta>> {
        self.meta.lock().clone()
    }

    /// Asks what it is.
    pub async fn meta(&self) -> Result<Arc<Meta>, KmsCallError> {
        self.look().await.map(|(meta, _)| meta)
    }

    /// Its kind, by the names of the public interface.
    pub(crate) fn kind(&self) -> &'static str {
        contract::kind(self.contract())
    }

    /// Asks what it is; also tells the certificate (DER) that it showed.
    pub(crate) async fn look(&self) -> Result<(Arc<Meta>, Vec<u8>), KmsCallError> {
        let (meta, certificate) = self.directory.meta().await?;
        let meta = Arc::new(meta);
        *self.meta.lock() = Some(Arc::clone(&meta));
        self.check_contract(&meta)?;
        Ok((meta, certificate))
    }

    /// A service of another contract is as good as none: keys for applications of this one are not there.
    fn check_contract(&self, meta: &Meta) -> Result<(), KmsCallError> {
        if contract::agrees(self.contract(), meta) {
            Ok(())
        } else {
            Err(KmsCallError::AnotherContract { slug: self.slug().to_owned() })
        }
    }

    /// Refuses one that is known to be of another contract, and asks one of which that matters and is not known.
    async fn check_known(&self) -> Result<(), KmsCallError> {
        match self.known() {
            Some(meta) if contract::agrees(self.contract(), &meta) => Ok(()),
            None if self.contract().is_none() => Ok(()),
            _ => self.look().await.map(|_| ()),
        }
    }

    /// The key to seal an application's environment to, at most a minute old.
    pub async fn env_public_key(&self, app_id: AppId) -> Result<EnvPublicKeyResponse, KmsCallError> {
        self.check_known().await?;
        self.directory.env_public_key(app_id).await
    }

    /// The same as it is now: 64 hex digits.
    async fn current_env_public_key(&self, app_id: AppId) -> Result<String, KmsCallError> {
        self.check_known().await?;
        let key = self.directory.current_env_public_key(app_id).await?;
        Ok(hex::encode(&key.public_key))
    }

    /// Gives an application its owners, or other ones with the approval of the present ones.
    pub(crate) async fn set_owners(&self, owners: &SetOwners) -> Result<(), KmsCallError> {
        self.check_known().await?;
        self.directory.set_owners(owners).await
    }

    /// Takes back that an application may run a document; lastingly with the approval of its owners.
    pub(crate) async fn revoke_app(&self, revoke: &AllowApp) -> Result<(), KmsCallError> {
        self.directory.revoke_app(revoke).await
    }

    /// Who owns an application, signed by the service's root.
    pub(crate) async fn app_owners(&self, app_id: AppId) -> Result<AppOwnersResponse, KmsCallError> {
        self.directory.app_owners(app_id).await
    }

    /// The images whose machines get keys; `None` where its own rules name none, because every development
    /// platform is let in or another program decides.
    pub async fn allowed_images(&self) -> Result<Option<Vec<OsImageHash>>, KmsCallError> {
        let rules = self.directory.platform_rules().await?;
        let hash = |bytes: &Hex| <[u8; 32]>::try_from(bytes.0.as_slice()).ok().map(OsImageHash::from_bytes);
        Ok(rules.os_images.map(|images| images.iter().filter_map(hash).collect()))
    }

    /// Its record on the wire.
    #[must_use]
    pub fn info(&self) -> KmsInfo {
        let meta = self.known();
        let known = |of: fn(&Meta) -> Option<String>| meta.as_deref().and_then(of);
        KmsInfo {
            id: KmsId(self.id),
            slug: Some(self.slug().to_owned()),
            url: address(self.guest_url()),
            version: known(|meta| Some(meta.version.clone())).unwrap_or_else(|| UNKNOWN_VERSION.to_owned()),
            chain_id: self.contract().map(|contract| contract.wire_chain_id()),
            kms_contract_address: self.contract().map(|contract| contract.hex_address()),
            gateway_app_id: known(|meta| meta.gateway_app_id.clone()),
        }
    }
}

/// A base address as guests and clients write it: without a slash at its end.
pub(crate) fn address(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

impl Kmses {
    /// Takes the configured services; each keeps the number that its name was given the first time.
    pub async fn open(configured: Vec<KmsConfig>, store: &Store, clock: &Clock) -> Result<Self, KmsesError> {
        let mut kmses: Vec<Arc<Kms>> = Vec::new();
        for config in configured {
            config.check()?;
            if kmses.iter().any(|kms| kms.slug() == config.slug) {
                return Err(InvalidKmsConfig::Twice(config.slug).into());
            }
            let mut change = store.upkeep().await?;
            let id = change.put_kms(&config.slug, clock.now_ms()).await?;
            change.commit().await?;
            kmses.push(Arc::new(Kms {
                id,
                directory: Directory::new(config, clock.clone()),
                meta: Mutex::default(),
            }));
        }
        Ok(Self(kmses))
    }

    /// All of them, the default one first.
    #[must_use]
    pub fn all(&self) -> &[Arc<Kms>] {
        &self.0
    }

    /// The one that is used when a request names none.
    #[must_use]
    pub fn default_one(&self) -> Option<&Arc<Kms>> {
        self.0.first()
    }

    /// The one with a number.
    #[must_use]
    pub fn get(&self, id: i64) -> Option<&Arc<Kms>> {
        self.0.iter().find(|kms| kms.id == id)
    }

    /// The first one of a kind, by the names of the public interface.
    pub(crate) fn of_kind(&self, kind: &str) -> Option<&Arc<Kms>> {
        self.0.iter().find(|kms| kms.kind().eq_ignore_ascii_case(kind))
    }

    /// Those that a contract decides for, or that stand alone: the one with this number and its like.
    pub(crate) fn of_same_contract(&self, kms: &Kms) -> impl Iterator<Item = &Arc<Kms>> {
        let (id, contract) = (kms.id(), kms.contract());
        self.0.iter().filter(move |other| match contract {
            Some(_) => other.contract() == contract,
            None => other.id() == id,
        })
    }

    /// The one that a text names: its id, that of what decides for it, its slug, or the kind of service, of which
    /// it is the first.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<&Arc<Kms>> {
        if let Ok(KmsId(id)) = text.parse() {
            return self.get(id);
        }
        if let Ok(KmsContractId(id)) = text.parse() {
            return self.get(id);
        }
        let named = self.0.iter().find(|kms| kms.slug().eq_ignore_ascii_case(text));
        named.or_else(|| self.of_kind(text))
    }

    /// The kind of the service with this number; one that is not part of the installation any more counts as one
    /// without a contract.
    pub(crate) fn kind_of(&self, id: i64) -> &'static str {
        contract::kind(self.get(id).and_then(|kms| kms.contract()))
    }

    /// Whether a contract decides for the service with this number: then nothing is told to it.
    pub(crate) fn is_of_contract(&self, id: i64) -> bool {
        self.get(id).is_some_and(|kms| kms.contract().is_some())
    }

    /// The key to seal the environment of an application of such a service to, as it is now: 64 hex digits.
    pub(crate) async fn env_key(&self, id: i64, app_id: AppId) -> Result<String, KmsCallError> {
        self.get(id).ok_or(KmsCallError::Unknown)?.current_env_public_key(app_id).await
    }

    /// Lets an application run a document at the service with this number. Answers with the key to seal its
    /// environment to from now on: 64 hex digits.
    pub(crate) async fn allow_app(&self, id: i64, allow: &AllowApp) -> Result<String, KmsCallError> {
        let kms = self.get(id).ok_or(KmsCallError::Unknown)?;
        kms.check_known().await?;
        kms.directory.allow_app(allow).await?;
        kms.current_env_public_key(allow.app_id).await
    }

    /// Takes back that an application may run a document at the service with this number.
    pub(crate) async fn revoke_app(&self, id: i64, revoke: &AllowApp) -> Result<(), KmsCallError> {
        self.get(id).ok_or(KmsCallError::Unknown)?.revoke_app(revoke).await
    }

    /// Keeps what is known of the services up to date until it is stopped.
    pub(crate) async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let watches = self.0.iter().map(|kms| kms.watch());
        tokio::select! {
            () = stop.cancelled() => {}
            _ = futures_util::future::join_all(watches) => {}
        }
    }
}

impl Kms {
    async fn watch(&self) {
        let mut reached = None;
        loop {
            let outcome = self.meta().await;
            match &outcome {
                Ok(meta) if reached != Some(true) => {
                    info!(kms = self.slug(), version = meta.version, "the KMS answers");
                }
                Err(error) if reached != Some(false) => {
                    warn!(
                        kms = self.slug(),
                        error = error as &dyn std::error::Error,
                        "the KMS does not answer"
                    );
                }
                _ => {}
            }
            reached = Some(outcome.is_ok());
            tokio::time::sleep(if outcome.is_ok() { LOOK_EVERY } else { LOOK_AGAIN }).await;
        }
    }
}
