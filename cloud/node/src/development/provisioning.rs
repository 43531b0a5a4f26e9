//! Getting the platform's certificate from the control plane, which plays the vendor.

use std::time::Duration;

use cloister_development_tee::Registration;
use cloister_node_api::{PlatformCertificate, PlatformRequest, paths};

use super::{CertifyError, DevelopmentPlatform};
use crate::clock;
use crate::control_plane::{CallError, ControlPlaneClient};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
enum ProvisionError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the control plane's certificate for this platform cannot be used")]
    Certify(#[from] CertifyError),
}

impl DevelopmentPlatform {
    /// Gets a certificate, however long that takes. Also a platform that has one asks at every start: the
    /// vendor may be another one than before.
    pub(crate) async fn provision(&self, client: ControlPlaneClient) {
        let mut failures = 0u32;
        loop {
            match self.ask(&client).await {
                Ok(()) => return,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    // An outage is worth one line, not one per attempt.
                    if failures == 0 {
                        tracing::warn!(error, "no certificate for the development platform; trying again");
                    } else {
                        tracing::debug!(error, failures, "still no certificate for the platform");
                    }
                }
            }
            let pause = FIRST_PAUSE * 2u32.saturating_pow(failures.min(8));
            failures = failures.saturating_add(1);
            tokio::time::sleep(clock::jittered(pause.min(LONGEST_PAUSE))).await;
        }
    }

    async fn ask(&self, client: &ControlPlaneClient) -> Result<(), ProvisionError> {
        let registration = self.key().and_then(|key| key.registration()).map_err(CertifyError::from)?;
        let Registration { ppid, public_key, proof } = registration;
        let request = PlatformRequest { ppid, public_key, proof };
        let answer: PlatformCertificate = client.post(paths::DEVELOPMENT_PLATFORM, &request).await?;
        self.certify(&answer.certificate_chain)?;
        tracing::info!("guests can get quotes of the development TEE, which proves no hardware protection");
        Ok(())
    }
}
