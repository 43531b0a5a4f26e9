//! What this CVM proves: measured at boot, shown to whoever asks.

mod certificates;
mod document;
mod events;
mod info;
mod prover;
#[cfg(test)]
pub(crate) mod testing;
mod tls_keys;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::{AppCompose, AppId, ComposeHash, InstanceId, KeyProvider};
use cloister_attester::{AttestError, Attester, DetectError, Evidence};
use cloister_evidence::report_data::ReportData;
use cloister_evidence::{KeyProviderKind, LaunchIdentity, Registers, RuntimeEvent, VmConfig};
use cloister_guest_channel::config_disk::SysConfig;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

pub(crate) use certificates::{CertificateError, Certificates};
pub(crate) use document::{DocumentError, event_log_json};
pub(crate) use events::KeyProviderInfo;
pub(crate) use prover::Prover;
pub(crate) use tls_keys::TlsKeyRequest;

use crate::failure;
use crate::keys::{AppKeys, CertificateSigner};
use crate::machine::clock;

/// Longest wait of those who need the certificates of this boot, which take two quotes.
pub(crate) const CERTIFICATES_PATIENCE: Duration = Duration::from_secs(30);
/// Pauses before certificates that could not be made are tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why a CVM cannot prove what it is; it does not run then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttestationError {
    #[error("this guest cannot prove what it is")]
    Detect(#[from] DetectError),
    #[error("the platform does not measure this boot")]
    Attest(#[from] AttestError),
    #[error("the platform's own quote cannot be read")]
    Quote(#[from] cloister_evidence::InvalidQuote),
    #[error("the platform's own quote is not that of a TDX machine")]
    NotTdx,
    #[error("the node launched this machine for another application than the one on the configuration disk")]
    OtherApplication(#[source] cloister_evidence::MrConfigIdError),
}

/// What the launch left in the registers, where there are such registers.
#[derive(Debug, Clone, Copy)]
struct Launch {
    registers: Registers,
    identity: LaunchIdentity,
}

/// The first half of a measured boot: the platform was found, and holds which application this is.
#[derive(Debug)]
pub(crate) struct Measuring {
    attester: Attester,
    launch: Option<Launch>,
}

/// Which application and CVM this is.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) app_id: AppId,
    pub(crate) compose_hash: ComposeHash,
    pub(crate) instance: Option<InstanceId>,
    /// The document forbids an identity of its own.
    pub(crate) no_instance_id: bool,
    /// What the document wants its keys from.
    pub(crate) key_provider: KeyProvider,
    pub(crate) app_name: String,
    /// Exact text of the app-compose document.
    pub(crate) app_compose: String,
    /// Anybody may see measurements.
    pub(crate) public_tcbinfo: bool,
    /// The machine's description as the node gave it, JSON text; unmeasured.
    pub(crate) vm_config: String,
    /// The image that the description names; unmeasured, empty without one.
    pub(crate) os_image_hash: String,
    /// Names that the agent's certificate is for; nobody relies on them.
    pub(crate) host_names: Vec<String>,
}

/// Evidence of this CVM, for all who ask.
#[derive(Debug)]
pub(crate) struct Attestation {
    pub(crate) attester: Attester,
    pub(crate) facts: Facts,
    keys: Option<Keys>,
    launch: Option<Launch>,
    certificates: watch::Receiver<Making>,
    vendor: String,
    product: String,
}

/// What a KMS gave this CVM, and who signs its certificates there.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) app: AppKeys,
    pub(crate) provider: KeyProviderInfo,
    pub(crate) signer: Box<dyn CertificateSigner>,
}

/// How far the certificates are.
#[derive(Debug, Clone)]
enum Making {
    /// The first attempt is not over.
    UnderWay,
    /// It failed; further ones follow, for which nobody waits.
    Failed,
    Made(Arc<Certificates>),
}

impl Facts {
    pub(crate) fn new(app: &AppCompose, system: &SysConfig, key_provider: KeyProvider) -> Self {
        let described: Option<VmConfig> = serde_json::from_str(&system.vm_config).ok();
        let members = app.members();
        let app_id = system.app_id.to_string();
        let port = cloister_guest_channel::AGENT_PORT;
        let gateway = members.default_gateway_domain.as_ref();
        let host_names = gateway.map(|domain| format!("{app_id}-{port}s.{domain}"));
        Self {
            app_id: system.app_id,
            compose_hash: app.compose_hash(),
            instance: None,
            no_instance_id: members.no_instance_id,
            key_provider,
            app_name: members.name.clone(),
            app_compose: String::from_utf8_lossy(app.bytes()).into_owned(),
            public_tcbinfo: members.public_tcbinfo,
            vm_config: system.vm_config.clone(),
            os_image_hash: described.map(|vm| vm.os_image_hash.to_string()).unwrap_or_default(),
            // The domain is the document's own words, and a certificate's names are ASCII.
            host_names: host_names.into_iter().filter(|name| name.is_ascii()).chain([app_id]).collect(),
        }
    }
}

impl Measuring {
    /// Measures which application this is, and checks that the platform was launched for it, if it says.
    pub(crate) async fn begin(attester: Attester, facts: &Facts) -> Result<Self, AttestationError> {
        let started_ms = clock::uptime_ms();
        attester.measure(events::of_application(&facts.app_id, &facts.compose_hash)).await?;
        let launch = if attester.platform().makes_tdx_quotes() {
            Some(Launch::of(&attester.quote(&[0; 64]).await?, facts)?)
        } else {
            None
        };
        let took_ms = clock::uptime_ms().saturating_sub(started_ms);
        info!("the application is measured by {} ({took_ms} ms)", attester.platform());
        Ok(Self { attester, launch })
    }

    /// Measures which CVM this is, which ends what a KMS wants to see.
    pub(crate) async fn instance(&self, instance: Option<&InstanceId>) -> Result<(), AttestationError> {
        Ok(self.attester.measure(events::of_instance(instance)).await?)
    }

    /// Measures who gave the keys, and the image as the KMS verified it, if one did.
    pub(crate) async fn keys(
        &self,
        provider: &KeyProviderInfo,
        os_image_hash: Option<&[u8]>,
    ) -> Result<(), AttestationError> {
        Ok(self.attester.measure(events::of_keys(provider, os_image_hash)).await?)
    }

    /// Who makes evidence during the boot.
    pub(crate) fn prover(&self, facts: &Facts) -> Prover {
        Prover { attester: self.attester.clone(), vm_config: facts.vm_config.clone() }
    }

    /// Measures that the system is ready. The certificates are made behind the caller's back, since they
    /// take two quotes.
    pub(crate) async fn finish(
        self,
        facts: Facts,
        keys: Option<Keys>,
    ) -> Result<Arc<Attestation>, AttestationError> {
        let Self { attester, launch } = self;
        attester.measure(events::of_system()).await?;
        info!("the system is measured ({} ms since power-on)", clock::uptime_ms());
        let (made, certificates) = watch::channel(Making::UnderWay);
        let attestation = Arc::new(Attestation {
            attester,
            facts,
            keys,
            launch,
            certificates,
            vendor: firmware_name("sys_vendor"),
            product: firmware_name("product_name"),
        });
        tokio::spawn(make_certificates(Arc::clone(&attestation), made));
        Ok(attestation)
    }
}

/// Tries until it works: the platform may be busy with others, or away for a while.
async fn make_certificates(attestation: Arc<Attestation>, made: watch::Sender<Making>) {
    let mut pause = FIRST_PAUSE;
    loop {
        match Certificates::make(&attestation, clock::now()).await {
            Ok(certificates) => {
                made.send_replace(Making::Made(Arc::new(certificates)));
                return;
            }
            Err(error) => warn!("cannot make certificates yet: {}", failure::chain(&error)),
        }
        made.send_replace(Making::Failed);
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Launch {
    fn of(evidence: &Evidence, facts: &Facts) -> Result<Self, AttestationError> {
        let quote = cloister_evidence::Quote::parse(&evidence.quote)?;
        let report = quote.td_report().ok_or(AttestationError::NotTdx)?;
        let (kind, id) = match &facts.key_provider {
            KeyProvider::None => (KeyProviderKind::None, [].as_slice()),
            KeyProvider::Kms { pinned_root } => {
                (KeyProviderKind::Kms, pinned_root.as_deref().unwrap_or_default())
            }
        };
        let expected = cloister_evidence::ExpectedConfig {
            compose_hash: &facts.compose_hash,
            app_id: &facts.app_id,
            key_provider: Some((kind, id)),
            document: None,
        };
        cloister_evidence::check_mr_config_id(&report.mrconfigid, &expected)
            .map_err(AttestationError::OtherApplication)?;
        Ok(Self { registers: report.registers(), identity: report.launch_identity() })
    }
}

impl Attestation {
    /// A quote, and the log that belongs to it.
    pub(crate) async fn quote(&self, report_data: &ReportData) -> Result<Evidence, AttestError> {
        self.attester.quote(report_data).await
    }

    /// Measures an event of the application.
    pub(crate) async fn measure(&self, event: RuntimeEvent) -> Result<(), AttestError> {
        self.attester.measure(vec![event]).await
    }

    /// Who gave the application its keys.
    pub(crate) fn key_provider(&self) -> KeyProviderInfo {
        self.keys.as_ref().map_or_else(KeyProviderInfo::none, |keys| keys.provider.clone())
    }

    /// What the KMS released; `None` for an application without key provider.
    pub(crate) fn keys(&self) -> Option<&AppKeys> {
        self.keys.as_ref().map(|keys| &keys.app)
    }

    /// The certificates of this boot. The first attempt to make them is waited for, at most for `patience`;
    /// `None` as long as there are none behind it.
    pub(crate) async fn certificates(&self, patience: Duration) -> Option<Arc<Certificates>> {
        let mut making = self.certificates.clone();
        let tried = timeout(patience, making.wait_for(|making| !matches!(making, Making::UnderWay))).await;
        match &*tried.ok()?.ok()? {
            Making::Made(certificates) => Some(Arc::clone(certificates)),
            Making::UnderWay | Making::Failed => None,
        }
    }
}

/// What the firmware says about the machine; empty where it says nothing.
fn firmware_name(name: &str) -> String {
    let file = Path::new("/sys/class/dmi/id").join(name);
    std::fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default()
}
