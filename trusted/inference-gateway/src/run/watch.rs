//! Files that change: the configuration, and the listener's certificate.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cloister_aci::TlsKey;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::parts::Prepared;
use super::{StartError, Tls};
use crate::config::TlsFiles;
use crate::door::Certificate;
use crate::error::chain;
use crate::gateway::Gateway;
use crate::operator::{Reloaded, remark};

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// What tells one state of a file from another: when it was written, how long it is, and which file it is.
type Mark = Option<(i64, i64, u64, u64)>;

fn mark(path: &Path) -> Mark {
    let file = std::fs::metadata(path).ok()?;
    Some((file.mtime(), file.mtime_nsec(), file.size(), file.ino()))
}

/// What was seen of the files.
pub(super) struct Watch {
    gateway: Arc<Gateway>,
    tls: Option<Tls>,
    seen: Marks,
    /// Why the last configuration does not hold.
    failure: Option<String>,
}

/// Of the configuration, and of the certificate with its key.
type Marks = (Mark, Option<(Mark, Mark)>);

impl Watch {
    pub(super) fn new(gateway: Arc<Gateway>, tls: Option<Tls>) -> Self {
        let mut watch = Self { gateway, tls, seen: Marks::default(), failure: None };
        watch.seen = watch.marks();
        watch
    }

    fn marks(&self) -> Marks {
        let config = self.gateway.office.settings().and_then(|settings| mark(settings.file()));
        let files = self.tls.as_ref().and_then(|tls| tls.files.as_ref());
        (config, files.map(|files| (mark(&files.certificate), mark(&files.key))))
    }

    /// Stays until it is told to stop. `look_again` is somebody who knows better than the clock.
    pub(super) async fn run(mut self, look_again: Arc<Notify>, stop: CancellationToken) {
        let mut clock = interval(LOOK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_asked = tokio::select! {
                () = stop.cancelled() => return,
                () = look_again.notified() => true,
                _ = clock.tick() => false,
            };
            self.look(is_asked).await;
        }
    }

    /// Takes over what has become another one, or all of it if asked.
    pub(super) async fn look(&mut self, is_asked: bool) {
        let now = self.marks();
        let is_other = is_asked || now.0 != self.seen.0;
        // What a configuration names may be there by now, without its own file being another one.
        if is_other || self.failure.is_some() {
            let reloaded = reload(&self.gateway).await;
            match &reloaded {
                Ok(Reloaded { is_other: true, waiting }) if waiting.is_empty() => {
                    tracing::info!("another configuration holds");
                }
                Ok(Reloaded { is_other: true, waiting }) => {
                    let members = waiting.join(", ");
                    tracing::error!(
                        members,
                        "another configuration holds, but for these, which need a restart"
                    );
                }
                Ok(_) if self.failure.is_some() => tracing::info!("the configuration is of use again"),
                Ok(_) if is_asked => tracing::info!("the configuration is the one that holds"),
                Ok(_) | Err(_) => {}
            }
            let holds = reloaded.as_ref().is_ok_and(|reloaded| reloaded.waiting.is_empty());
            let failure = reloaded.err().map(|error| chain(&error));
            if let Some(error) = failure.as_ref().filter(|_| is_other || failure != self.failure) {
                tracing::error!(error, "the configuration is of no use; what held before holds on");
            }
            self.gateway.office.note_file(holds);
            self.failure = failure;
        }
        if let Some(tls) = self.tls.as_ref().filter(|_| is_asked || now.1 != self.seen.1)
            && let Some(files) = &tls.files
        {
            renew(&self.gateway, &tls.certificate, files);
        }
        self.seen = now;
    }
}

/// The token's file, too, may be another one without the configuration being it.
async fn reload(gateway: &Gateway) -> Result<Reloaded, StartError> {
    let Some(settings) = gateway.office.settings() else {
        return Ok(Reloaded { is_other: false, waiting: Vec::new() });
    };
    let (reloaded, prepared) = settings.reload(gateway, Prepared::read).await?;
    prepared.hold(gateway);
    if reloaded.is_other {
        remark(&gateway.live().config);
    }
    Ok(reloaded)
}

/// Another certificate is shown when the keyset has its key.
fn renew(gateway: &Gateway, certificate: &Certificate, files: &TlsFiles) {
    match certificate.changed(files) {
        Ok(None) => {}
        Ok(Some(next)) => {
            gateway.notary.set_tls_keys(vec![tls_key(next.spki_sha256())]);
            certificate.show(next);
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
