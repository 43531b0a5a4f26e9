//! Plays TEE hardware for guests of a host that has none, and for a process beside them: keeps a platform's keys, gets them certified by
//! the control plane, and answers what guests ask of their hardware. Proves nothing to anybody who does
//! not trust this installation's development root.

mod channel;
mod host_process;
mod provisioning;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cloister_development_tee::{Platform, PlatformKey, TeeError};
use cloister_node_api::Platform as HostPlatform;
use tokio::sync::watch;

use crate::files;

pub(crate) use channel::serve;
pub(crate) use host_process::{HostProcessError, serve as serve_host_process};

/// The platform's certificate chain, beside its key.
const CERTIFICATE_FILE: &str = "certificate.pem";

/// Whether guests of a platform have no hardware that measures them.
pub(crate) const fn is_development(platform: HostPlatform) -> bool {
    matches!(platform, HostPlatform::Emulation | HostPlatform::Kvm)
}

/// The platform that this node plays.
#[derive(Debug)]
pub(crate) struct DevelopmentPlatform {
    dir: PathBuf,
    /// `None` until it has a certificate.
    certified: watch::Sender<Option<Arc<Platform>>>,
}

impl DevelopmentPlatform {
    /// The platform kept in `dir`; its key is made at first start. Works at once with a certificate of an
    /// earlier start, which [`DevelopmentPlatform::provision`] then renews.
    pub(crate) fn open(dir: PathBuf) -> Result<Self, TeeError> {
        let key = PlatformKey::load_or_create(&dir)?;
        let certified = std::fs::read_to_string(dir.join(CERTIFICATE_FILE))
            .ok()
            .and_then(|chain| Platform::new(key, &chain).ok())
            .map(Arc::new);
        Ok(Self { dir, certified: watch::Sender::new(certified) })
    }

    fn key(&self) -> Result<PlatformKey, TeeError> {
        PlatformKey::load_or_create(&self.dir)
    }

    /// Takes a certificate and keeps it.
    fn certify(&self, certificate_chain: &str) -> Result<(), CertifyError> {
        let platform = Platform::new(self.key()?, certificate_chain)?;
        files::write(&self.certificate(), certificate_chain.as_bytes())?;
        self.certified.send_replace(Some(Arc::new(platform)));
        Ok(())
    }

    fn certificate(&self) -> PathBuf {
        self.dir.join(CERTIFICATE_FILE)
    }

    /// The platform, once it has a certificate; `None` when that takes longer than `patience`.
    async fn certified(&self, patience: Duration) -> Option<Arc<Platform>> {
        let mut certified = self.certified.subscribe();
        let known = tokio::time::timeout(patience, certified.wait_for(Option::is_some)).await;
        known.ok()?.ok()?.clone()
    }
}

/// Why a certificate was not taken.
#[derive(Debug, thiserror::Error)]
enum CertifyError {
    #[error(transparent)]
    Tee(#[from] TeeError),
    #[error("the platform's certificate cannot be kept")]
    Io(#[from] io::Error),
}

/// Directory of the platform's keys in a node's data directory.
pub(crate) fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join("development-tee")
}
