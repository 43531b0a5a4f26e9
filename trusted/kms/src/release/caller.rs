//! What a caller is, beyond its verified evidence: how far it has come, and which image it booted.

use std::sync::Arc;

use cloister_app_compose::{AppId, OsImageHash};
use cloister_evidence::{EventLog, Registers, VmConfig, VmConfigError, event_name};
use cloister_kms_api::{KmsError, KmsErrorCode};
use cloister_ra_tls::PeerIdentity;
use parking_lot::Mutex;

use super::Peer;
use crate::door::Who;
use crate::policy::{BootInfo, Form};
use crate::state::Holder;

/// Register of what software measures.
const RUNTIME_REGISTER: u32 = 3;
/// Longest description of a machine, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 256 << 10;

/// How far a machine has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It does not say that it measured what keys are released to.
    Early,
    /// It has measured that, and nothing else: it waits for its keys.
    Asking,
    /// It has gone on: what runs there may be its application.
    Past,
}

impl Stage {
    fn of(log: &EventLog) -> Self {
        let events = log.entries().iter().filter(|entry| entry.imr == RUNTIME_REGISTER);
        let mut behind = events.skip_while(|entry| entry.event != event_name::BOOT_MR_DONE);
        match (behind.next(), behind.next()) {
            (None, _) => Self::Early,
            (Some(_), None) => Self::Asking,
            (Some(_), Some(_)) => Self::Past,
        }
    }
}

/// A machine whose description leads to its registers.
pub(super) struct Described {
    vm_config: String,
    /// In the form in which authorities decide.
    pub(super) boot: BootInfo,
    /// The image.
    pub(super) os_image_hash: OsImageHash,
}

impl Peer {
    pub(super) fn new(identity: Arc<PeerIdentity>) -> Self {
        let boot = BootInfo::of_peer(&identity, None, Form::Boot);
        Self {
            stage: Stage::of(&identity.event_log),
            who: Who::Known(boot.mr_aggregated),
            caller: boot.caller(),
            identity,
            described: Mutex::new(None),
        }
    }

    /// The machine, as `vm_config` describes it; refused unless the registers say the same.
    pub(super) fn described(&self, vm_config: &str) -> Result<Arc<Described>, KmsError> {
        let mut known = self.described.lock();
        if let Some(known) = known.as_ref().filter(|known| known.vm_config == vm_config) {
            return Ok(Arc::clone(known));
        }
        let described = Arc::new(describe(&self.identity, vm_config)?);
        *known = Some(Arc::clone(&described));
        Ok(described)
    }

    /// The same, of a machine that measured an application and finished to boot so far.
    pub(super) fn application(&self, vm_config: &str) -> Result<(Arc<Described>, AppId), KmsError> {
        if self.stage == Stage::Early {
            return Err(unauthorized("the machine has not measured yet what keys are released to"));
        }
        let described = self.described(vm_config)?;
        let app_id = application(&described.boot)?;
        Ok((described, app_id))
    }
}

/// The application that was measured.
pub(super) fn application(boot: &BootInfo) -> Result<AppId, KmsError> {
    boot.app_id.ok_or_else(|| {
        KmsError::new(KmsErrorCode::MeasurementNotFound, "the machine measured no application")
    })
}

/// Whose disk a machine of an application has.
pub(super) fn holder(app_id: AppId, boot: &BootInfo) -> Holder {
    (app_id, boot.instance_id)
}

/// A machine whose evidence was verified, as `vm_config` describes it.
pub(super) fn describe(identity: &PeerIdentity, vm_config: &str) -> Result<Described, KmsError> {
    let os_image_hash = image(&identity.registers, vm_config)?;
    let boot = BootInfo::of_peer(identity, Some(os_image_hash), Form::Boot);
    Ok(Described { vm_config: vm_config.to_owned(), boot, os_image_hash })
}

/// The image whose documents lead to these registers.
pub(super) fn image(registers: &Registers, vm_config: &str) -> Result<OsImageHash, KmsError> {
    let described = read(vm_config)?;
    let measurement = described
        .image_measurement()
        .map_err(|error| unauthorized(format!("the description of the machine proves nothing: {error}")))?;
    let launch = measurement.launch(described.cpu_count, described.memory_size);
    let [rtmr0, rtmr1, rtmr2] = launch.rtmr;
    let compared = [
        ("MRTD", launch.mrtd, registers.mrtd),
        ("RTMR0", rtmr0, registers.rtmr0),
        ("RTMR1", rtmr1, registers.rtmr1),
        ("RTMR2", rtmr2, registers.rtmr2),
    ];
    match compared.iter().find(|(_, wanted, actual)| wanted != actual) {
        None => Ok(described.os_image_hash),
        Some((name, ..)) => Err(unauthorized(format!(
            "the machine booted something else than its description says: {name} differs"
        ))),
    }
}

/// The image of a KMS; `None` where its description names no documents of one: KMSes that are processes of a host
/// have none.
pub(crate) fn named_image(registers: &Registers, vm_config: &str) -> Result<Option<OsImageHash>, KmsError> {
    if names_an_image(vm_config)? { image(registers, vm_config).map(Some) } else { Ok(None) }
}

fn names_an_image(vm_config: &str) -> Result<bool, KmsError> {
    if vm_config.is_empty() {
        return Ok(false);
    }
    Ok(!matches!(read(vm_config)?.image_measurement(), Err(VmConfigError::NoMeasurement)))
}

fn read(vm_config: &str) -> Result<VmConfig, KmsError> {
    if vm_config.len() > MAX_DESCRIPTION_BYTES {
        return Err(unauthorized(format!(
            "the description of the machine has more than {MAX_DESCRIPTION_BYTES} bytes"
        )));
    }
    serde_json::from_str(vm_config)
        .map_err(|_| unauthorized("the description of the machine (vm_config) cannot be read"))
}

pub(super) fn unauthorized(reason: impl Into<String>) -> KmsError {
    KmsError::new(KmsErrorCode::Unauthorized, reason)
}
