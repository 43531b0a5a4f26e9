//! What this CVM proves: measured at boot, shown to whoever asks.

mod certificates;
mod document;
mod events;
mod info;
#[cfg(test)]
pub(crate) mod testing;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::{AppCompose, AppId, ComposeHash, InstanceId};
use cloister_attester::{AttestError, Attester, DetectError, Evidence};
use cloister_evidence::report_data::ReportData;
use cloister_evidence::{LaunchIdentity, Registers, RuntimeEvent, VmConfig};
use cloister_guest_channel::config_disk::SysConfig;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

pub(crate) use certificates::{Certificates, TlsKeyRequest};
pub(crate) use document::{DocumentError, event_log_json};

use crate::failure;
use crate::machine::clock;

/// Longest wait for the certificates of this boot, which take two quotes.
const CERTIFICATES_PATIENCE: Duration = Duration::from_secs(30);

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
    launch: Option<Launch>,
    certificates: watch::Receiver<Option<Arc<Certificates>>>,
    vendor: String,
    product: String,
}

impl Facts {
    pub(crate) fn new(app: &AppCompose, system: &SysConfig) -> Self {
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
            app_name: members.name.clone(),
            app_compose: String::from_utf8_lossy(app.bytes()).into_owned(),
            public_tcbinfo: members.public_tcbinfo,
            vm_config: system.vm_config.clone(),
            os_image_hash: described.map(|vm| vm.os_image_hash.to_string()).unwrap_or_default(),
            host_names: host_names.into_iter().chain([app_id]).collect(),
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

    /// Measures the rest. The certificates are made behind the caller's back, since they take two quotes.
    pub(crate) async fn finish(self, facts: Facts) -> Result<Arc<Attestation>, AttestationError> {
        let Self { attester, launch } = self;
        let started_ms = clock::uptime_ms();
        attester.measure(events::of_instance(facts.instance.as_ref())).await?;
        info!("the instance is measured ({} ms)", clock::uptime_ms().saturating_sub(started_ms));
        let (made, certificates) = watch::channel(None);
        let attestation = Arc::new(Attestation {
            attester,
            facts,
            launch,
            certificates,
            vendor: firmware_name("sys_vendor"),
            product: firmware_name("product_name"),
        });
        let making = Arc::clone(&attestation);
        tokio::spawn(async move {
            match Certificates::make(&making, clock::now()).await {
                Ok(certificates) => drop(made.send_replace(Some(Arc::new(certificates)))),
                Err(error) => warn!("cannot make certificates: {}", failure::chain(&error)),
            }
        });
        Ok(attestation)
    }
}

impl Launch {
    fn of(evidence: &Evidence, facts: &Facts) -> Result<Self, AttestationError> {
        let quote = cloister_evidence::Quote::parse(&evidence.quote)?;
        let report = quote.td_report().ok_or(AttestationError::NotTdx)?;
        let expected = cloister_evidence::ExpectedConfig {
            compose_hash: &facts.compose_hash,
            app_id: &facts.app_id,
            key_provider: Some((cloister_evidence::KeyProviderKind::None, &[])),
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

    /// The certificates of this boot, as soon as they are made; `None` if they cannot be.
    pub(crate) async fn certificates(&self) -> Option<Arc<Certificates>> {
        let mut certificates = self.certificates.clone();
        let made = timeout(CERTIFICATES_PATIENCE, certificates.wait_for(Option::is_some)).await;
        made.ok()?.ok()?.clone()
    }
}

/// What the firmware says about the machine; empty where it says nothing.
fn firmware_name(name: &str) -> String {
    let file = Path::new("/sys/class/dmi/id").join(name);
    std::fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default()
}
