//! The machine that a KMS runs in, as others will see it.

use cloister_evidence::report_data::{ReportData, tagged};
use cloister_evidence::{Aggregates, AppInfo, EventLog, LaunchIdentity, VmConfig};
use cloister_kms_api::{AttestationInfo, Hex};
use cloister_verifier::{Tee, VerifiedQuote, Verifier, VerifyError};

use cloister_agent_client::{Agent, AgentError, OwnEvidence};

/// Why the machine cannot prove what it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    /// There is no evidence.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Nobody would believe it.
    #[error("this machine's own evidence does not verify")]
    Verify(#[from] VerifyError),
    /// Its evidence says something else than it should.
    #[error("this machine's own evidence contradicts itself: {0}")]
    Contradiction(&'static str),
}

/// What verified evidence says about this machine.
pub(crate) struct Machine {
    pub(crate) evidence: OwnEvidence,
    pub(crate) quote: VerifiedQuote,
    pub(crate) mr_aggregated: [u8; 32],
    os_image_hash: Vec<u8>,
}

impl Machine {
    /// Asks for evidence over `report_data` and verifies it as anybody else would: a KMS that nobody can
    /// believe should not get roots.
    pub(crate) async fn prove(
        agent: &Agent,
        verifier: &Verifier,
        report_data: &ReportData,
    ) -> Result<Self, MachineError> {
        let evidence = agent.quote(report_data).await?;
        let quote = verifier.quote(&evidence.quote).await?;
        let contradiction = MachineError::Contradiction;
        if quote.report_data != *report_data {
            return Err(contradiction("it was made over other bytes"));
        }
        let registers = quote
            .registers
            .filter(|_| quote.tee == Tee::Tdx)
            .ok_or_else(|| contradiction("it is not that of a confidential virtual machine"))?;
        let log =
            EventLog::parse(&evidence.event_log).map_err(|_| contradiction("its event log is malformed"))?;
        let [_, _, _, same] =
            log.builds(&registers).map_err(|_| contradiction("its event log cannot be replayed"))?;
        if !same {
            return Err(contradiction("its event log does not lead to RTMR 3"));
        }
        let app =
            AppInfo::from_event_log(&log).map_err(|_| contradiction("its events cannot be believed"))?;
        let launch = LaunchIdentity {
            config_id: quote.mr_config_id,
            owner: quote.mr_owner,
            owner_config: quote.mr_owner_config,
        };
        let aggregates = Aggregates::new(&registers, &launch, app.key_provider_payload.as_deref());
        let image = serde_json::from_str::<VmConfig>(&evidence.vm_config).ok().filter(|config| {
            config.image_measurement().is_ok_and(|image| {
                let launched = image.launch(config.cpu_count, config.memory_size);
                launched.mrtd == registers.mrtd
                    && launched.rtmr == [registers.rtmr0, registers.rtmr1, registers.rtmr2]
            })
        });
        let os_image_hash = image.map(|config| config.os_image_hash.as_bytes().to_vec()).unwrap_or_default();
        Ok(Self { evidence, quote, mr_aggregated: aggregates.mr_aggregated, os_image_hash })
    }

    /// Evidence that stands for nothing but the machine.
    pub(crate) async fn look(agent: &Agent, verifier: &Verifier) -> Result<Self, MachineError> {
        Self::prove(agent, verifier, &tagged("kms-attestation-info", &[])).await
    }

    /// For the operator, who may have to register it in a contract. The endpoints of the chain are secret.
    pub(crate) fn info(&self, kms_contract_address: Option<String>) -> AttestationInfo {
        AttestationInfo {
            device_id: Hex::from(self.quote.device_id),
            mr_aggregated: Hex::from(self.mr_aggregated),
            os_image_hash: Hex::from(self.os_image_hash.clone()),
            ppid: Hex::from(self.quote.ppid),
            tee_variant: "dstack-tdx".to_owned(),
            site_name: String::new(),
            eth_rpc_url: String::new(),
            kms_contract_address: kms_contract_address.unwrap_or_default(),
        }
    }
}
