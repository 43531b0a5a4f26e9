//! Proof of cloud: a signed list of platforms that are known to stand in vetted facilities.
//!
//! Genuine hardware in the hands of whoever wants to open it protects little. An operator, or an alliance
//! of them, therefore signs which platforms were seen where; this room keeps the newest such list. A
//! look-up means something only for the platform of a *verified* quote: anybody can write any identity
//! into a quote that nobody checks.

mod list;
mod source;

use std::sync::Arc;
use std::time::Duration;

use cloister_management_api::PlatformListState;
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use list::{InvalidKey, ListSigner, PlatformKey, Registration};
pub use source::{InvalidSource, ListSource};

use crate::clock::Clock;
use crate::store::{Store, StoreError};
use list::{ListError, PlatformList};
use source::SourceError;

/// How often the list is read again.
const EVERY: Duration = Duration::from_mins(15);

/// Where the list is and whose it is.
#[derive(Debug, Clone)]
pub struct ProofOfCloudConfig {
    /// The list; its signature lies beside it under the same name with `.minisig` appended.
    pub source: ListSource,
    /// Who signs it.
    pub signer: ListSigner,
}

/// The newest list that was accepted.
pub struct ProofOfCloud {
    config: Option<ProofOfCloudConfig>,
    store: Store,
    clock: Clock,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    list: Option<Arc<PlatformList>>,
    read_at: Option<Timestamp>,
    error: Option<String>,
}

/// Why the list was not read.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    List(#[from] ListError),
    #[error("the list has serial {0}, and a newer one was accepted before")]
    Older(i64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ProofOfCloud {
    /// Without a configuration no platform is registered.
    #[must_use]
    pub fn new(config: Option<ProofOfCloudConfig>, store: Store, clock: Clock) -> Self {
        Self { config, store, clock, state: RwLock::default() }
    }

    /// Reads the list now and then until it is stopped. A failure keeps the list that is there, which
    /// ends by itself when it expires.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        if self.config.is_none() {
            return;
        }
        loop {
            self.refresh().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    /// Reads the list now.
    pub(crate) async fn refresh(&self) {
        let Some(config) = &self.config else { return };
        let outcome = self.read(config).await;
        let mut state = self.state.write();
        state.read_at = Some(self.clock.now());
        match outcome {
            Ok(list) => {
                if state.list.as_ref().is_none_or(|kept| kept.serial() != list.serial()) {
                    info!(serial = list.serial(), platforms = list.len(), "a list of platforms was accepted");
                }
                *state = State { list: Some(Arc::new(list)), error: None, ..*state };
            }
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the list of platforms was not accepted");
                state.error = Some(error.to_string());
            }
        }
    }

    async fn read(&self, config: &ProofOfCloudConfig) -> Result<PlatformList, RefreshError> {
        let (document, signature) = config.source.read().await?;
        let list = PlatformList::verified(&document, &signature, &config.signer)?;
        let mut change = self.store.upkeep().await?;
        let signer = config.signer.to_string();
        if !change.accept_platform_list(&signer, list.serial(), self.clock.now_ms()).await? {
            return Err(RefreshError::Older(list.serial()));
        }
        change.commit().await?;
        Ok(list)
    }

    /// Whether the platform of a verified quote is registered now. Not for platforms without hardware.
    #[must_use]
    pub fn registration(&self, platform: &PlatformKey) -> Option<Registration> {
        let list = self.state.read().list.clone()?;
        list.registration(platform, self.clock.now())
    }

    /// What is known about the list, for administrators.
    #[must_use]
    pub fn state(&self) -> PlatformListState {
        let state = self.state.read();
        let list = state.list.as_deref();
        let now = self.clock.now();
        PlatformListState {
            configured: self.config.is_some(),
            source: self.config.as_ref().map(|config| config.source.to_string()),
            signer: self.config.as_ref().map(|config| config.signer.to_string()),
            usable: list.is_some_and(|list| list.is_current(now)),
            serial: list.map(PlatformList::serial),
            issued_at: list.map(PlatformList::issued_at),
            expires_at: list.map(PlatformList::expires_at),
            platforms: list.map_or(0, PlatformList::len),
            read_at: state.read_at,
            error: state.error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::store::tests::embedded;

    const SIGNER: &str = include_str!("fixtures/signer.txt");
    const ONE: &str = "intel:tdx:ppid:811dca2a26b952e85bb6448b097ba4fd";
    const TWO: &str = "intel:tdx:ppid:de5d028ab970ae67f36c3da32d5ee27e";

    fn fixture(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/proof_of_cloud/fixtures").join(name)
    }

    /// Puts the list with a serial where it is read from.
    fn publish(at: &Path, serial: u32) {
        std::fs::copy(fixture(&format!("serial-{serial}.json")), at).unwrap();
        std::fs::copy(fixture(&format!("serial-{serial}.json.minisig")), at.with_extension("json.minisig"))
            .unwrap();
    }

    async fn proof_of_cloud(dir: &Path, clock: &Clock) -> ProofOfCloud {
        let store = embedded(dir).await;
        let source = dir.join("list.json").to_str().unwrap().parse().unwrap();
        let config = ProofOfCloudConfig { source, signer: SIGNER.trim().parse().unwrap() };
        ProofOfCloud::new(Some(config), store, clock.clone())
    }

    fn provider(proof: &ProofOfCloud, platform: &str) -> Option<String> {
        proof.registration(&platform.parse().unwrap()).map(|registration| registration.provider)
    }

    #[tokio::test]
    async fn platforms_are_registered_while_the_list_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual("2025-06-01T00:00:00Z".parse().unwrap());
        let proof = proof_of_cloud(dir.path(), &clock).await;
        assert_eq!(provider(&proof, ONE), None, "nothing was read yet");
        proof.refresh().await;
        assert!(proof.state().error.is_some() && !proof.state().usable);
        publish(&dir.path().join("list.json"), 7);
        proof.refresh().await;
        assert_eq!(provider(&proof, ONE).as_deref(), Some("example"));
        assert_eq!(provider(&proof, TWO).as_deref(), Some("example"));
        assert_eq!(provider(&proof, "intel:tdx:ppid:00000000000000000000000000000000"), None);
        assert_eq!((proof.state().serial, proof.state().platforms, proof.state().usable), (Some(7), 3, true));
        clock.advance_ms(40 * 24 * 3600 * 1000);
        assert_eq!(provider(&proof, TWO), None, "it was revoked on the 1st of July");
        assert!(provider(&proof, ONE).is_some());
        clock.advance_ms(365 * 24 * 3600 * 1000);
        assert_eq!(provider(&proof, ONE), None, "the list expired");
        assert!(!proof.state().usable);
    }

    #[tokio::test]
    async fn a_platform_counts_from_the_day_it_was_added() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual("2025-01-15T00:00:00Z".parse().unwrap());
        let proof = proof_of_cloud(dir.path(), &clock).await;
        publish(&dir.path().join("list.json"), 7);
        proof.refresh().await;
        let amd = format!("amd:snp:chipid:{}", "0a".repeat(64));
        assert_eq!(provider(&proof, &amd), None);
        clock.advance_ms(60 * 24 * 3600 * 1000);
        assert_eq!(provider(&proof, &amd).as_deref(), Some("other"));
    }

    #[tokio::test]
    async fn a_newer_list_replaces_and_an_older_one_is_refused_even_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual("2025-07-15T00:00:00Z".parse().unwrap());
        let proof = proof_of_cloud(dir.path(), &clock).await;
        let list = dir.path().join("list.json");
        publish(&list, 7);
        proof.refresh().await;
        assert!(provider(&proof, ONE).is_some());
        publish(&list, 8);
        proof.refresh().await;
        assert_eq!(provider(&proof, ONE), None, "the newer list revokes it");
        publish(&list, 7);
        proof.refresh().await;
        assert_eq!((proof.state().serial, proof.state().error.is_some()), (Some(8), true));
        assert_eq!(provider(&proof, ONE), None);
        let restarted = proof_of_cloud(dir.path(), &clock).await;
        restarted.refresh().await;
        assert_eq!((restarted.state().serial, provider(&restarted, ONE)), (None, None));
        publish(&list, 8);
        restarted.refresh().await;
        assert_eq!(restarted.state().serial, Some(8));
    }

    #[tokio::test]
    async fn only_what_the_signer_signed_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual("2025-07-15T00:00:00Z".parse().unwrap());
        let proof = proof_of_cloud(dir.path(), &clock).await;
        let list = dir.path().join("list.json");
        publish(&list, 8);
        std::fs::copy(fixture("serial-8.of-another-key.minisig"), list.with_extension("json.minisig"))
            .unwrap();
        proof.refresh().await;
        assert_eq!(proof.state().serial, None, "signed by somebody else");
        publish(&list, 7);
        let good = std::fs::read(&list).unwrap();
        for at in [0, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&list, bad).unwrap();
            proof.refresh().await;
            assert_eq!(proof.state().serial, None, "byte {at} was changed");
        }
        std::fs::write(&list, vec![b' '; 9 << 20]).unwrap();
        proof.refresh().await;
        assert!(proof.state().error.unwrap().contains("larger"), "an endless list is not read");
    }
}
