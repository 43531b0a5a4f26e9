//! Files that change: the configuration, and the listener's certificate.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cloister_aci::TlsKey;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{Tls, parts};
use crate::error::chain;
use crate::gateway::Gateway;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// What tells one state of a file from another: when it was written, how long it is, and which file it is.
type Mark = Option<(i64, i64, u64, u64)>;

fn mark(path: &Path) -> Mark {
    let file = std::fs::metadata(path).ok()?;
    Some((file.mtime(), file.mtime_nsec(), file.size(), file.ino()))
}

/// Stays until it is told to stop. `look_again` is somebody who knows better than the clock.
pub(super) async fn watch(
    gateway: Arc<Gateway>,
    tls: Option<Tls>,
    look_again: Arc<Notify>,
    stop: CancellationToken,
) {
    let marks = || {
        let config = gateway.office.settings().and_then(|settings| mark(settings.file()));
        let files = tls.as_ref().map(|tls| (mark(&tls.files.certificate), mark(&tls.files.key)));
        (config, files)
    };
    let mut seen = marks();
    let mut clock = interval(LOOK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_asked = tokio::select! {
            () = stop.cancelled() => return,
            () = look_again.notified() => true,
            _ = clock.tick() => false,
        };
        let now = marks();
        if is_asked || now.0 != seen.0 {
            reload(&gateway).await;
        }
        if let Some(tls) = tls.as_ref().filter(|_| is_asked || now.1 != seen.1) {
            renew(&gateway, tls);
        }
        seen = now;
    }
}

async fn reload(gateway: &Gateway) {
    let Some(settings) = gateway.office.settings() else { return };
    match settings.reload(gateway).await {
        Ok(true) => tracing::info!("another configuration holds"),
        Ok(false) => {}
        Err(error) => {
            let error = chain(&error);
            tracing::error!(error, "the configuration's file is of no use; what held before holds on");
        }
    }
    // The token's file may be another one without the configuration being it.
    if let Err(error) = parts::configure(gateway) {
        tracing::error!(error = chain(&error), "what held before holds on");
    }
}

/// Another certificate is shown when the keyset has its key.
fn renew(gateway: &Gateway, tls: &Tls) {
    match tls.certificate.changed(&tls.files) {
        Ok(None) => {}
        Ok(Some(next)) => {
            gateway.notary.set_tls_keys(vec![tls_key(next.spki_sha256())]);
            tls.certificate.show(next);
            tracing::info!("another certificate holds");
        }
        // Its two files are not replaced at one moment: the next look may find both.
        Err(error) => tracing::warn!(error = chain(&error), "the certificate's files are of no use"),
    }
}

/// A key as a keyset lists it.
pub(super) fn tls_key(spki_sha256: [u8; 32]) -> TlsKey {
    TlsKey { spki_sha256: hex::encode(spki_sha256), domain: None }
}
