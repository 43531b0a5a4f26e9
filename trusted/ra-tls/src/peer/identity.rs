use cloister_evidence::{
    AppInfo, EventLog, ExpectedConfig, KeyProviderKind, LaunchIdentity, MrConfigIdError, Registers,
    check_mr_config_id, report_data,
};
use cloister_verifier::{Policy, TcbStatus, Tee, TrustRoot, VerifiedQuote, Verifier};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::PeerError;
use crate::carried::CarriedEvidence;

/// What verified evidence says about the holder of a key; nothing is a claim of its certificate's issuer.
/// The platform vouches for the registers, and for what was measured into them. What the events *mean* says
/// the software that measured them: it is true of an image that is known by the other registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Who vouches for the platform in the end.
    pub trust_root: TrustRoot,
    /// How well patched the platform is.
    pub tcb_status: TcbStatus,
    /// Security advisories that apply to the platform.
    pub advisory_ids: Vec<String>,
    /// Names the physical machine: SHA-256 of its provisioning id.
    pub device_id: [u8; 32],
    /// Measurement registers.
    pub registers: Registers,
    /// What the host named at launch.
    pub launch: LaunchIdentity,
    /// What was measured about the application.
    pub app: AppInfo,
    /// SHA-256 of the key's `SubjectPublicKeyInfo`.
    pub public_key_hash: [u8; 32],
    /// The replayed log, for what else was measured.
    pub event_log: EventLog,
    /// Until when all of this holds.
    pub valid_until: Timestamp,
}

const RTMR: [&str; 4] = ["RTMR0", "RTMR1", "RTMR2", "RTMR3"];
const RTMR_OF_RUNTIME_EVENTS: usize = 3;

/// Verifies evidence for the key with this `SubjectPublicKeyInfo`.
pub(super) fn establish(
    verifier: &Verifier,
    policy: &Policy,
    public_key: &[u8],
    evidence: &CarriedEvidence,
) -> Result<PeerIdentity, PeerError> {
    let CarriedEvidence::Tdx { quote, event_log, .. } = evidence;
    let quote = verifier.quote_blocking(quote)?;
    if quote.report_data != report_data::of_tls_key(public_key) {
        return Err(PeerError::OtherKey);
    }
    let registers = quote.registers.filter(|_| quote.tee == Tee::Tdx).ok_or(PeerError::NotAMachine)?;
    policy.check(&quote).map_err(PeerError::Platform)?;
    replay(event_log, &registers)?;
    let app = AppInfo::from_event_log(event_log)?;
    check_launch(&quote, &app)?;
    Ok(PeerIdentity {
        trust_root: quote.trust_root,
        tcb_status: quote.tcb_status,
        advisory_ids: quote.advisory_ids,
        device_id: quote.device_id,
        registers,
        launch: LaunchIdentity {
            config_id: quote.mr_config_id,
            owner: quote.mr_owner,
            owner_config: quote.mr_owner_config,
        },
        app,
        public_key_hash: Sha256::digest(public_key).into(),
        event_log: event_log.clone(),
        valid_until: quote.valid_until,
    })
}

/// The log must lead to RTMR 3, and to each other register that it speaks of: some peers leave the
/// launch out, whose registers are signed anyway.
fn replay(log: &EventLog, registers: &Registers) -> Result<(), PeerError> {
    let same = log.builds(registers)?;
    for (register, (name, same)) in RTMR.into_iter().zip(same).enumerate() {
        let told = log.entries().iter().any(|entry| usize::try_from(entry.imr) == Ok(register));
        if !same && (told || register == RTMR_OF_RUNTIME_EVENTS) {
            return Err(PeerError::Replay(name));
        }
    }
    Ok(())
}

/// What the host named at launch must be what was measured. Only a contradiction counts: the host may
/// name nothing, or something in a form of other versions, and RTMR 3 holds in any case.
fn check_launch(quote: &VerifiedQuote, app: &AppInfo) -> Result<(), PeerError> {
    let (Some(compose_hash), Some(app_id)) = (&app.compose_hash, &app.app_id) else { return Ok(()) };
    let provider = app.key_provider.as_ref();
    let provider = provider.and_then(|provider| {
        Some((KeyProviderKind::from_name(&provider.name)?, hex::decode(&provider.id).ok()?))
    });
    let key_provider = provider.as_ref().map(|(kind, id)| (*kind, id.as_slice()));
    let expected = ExpectedConfig { compose_hash, app_id, key_provider, document: None };
    match check_mr_config_id(&quote.mr_config_id, &expected) {
        Err(error @ MrConfigIdError::Mismatch) => Err(PeerError::Launch(error)),
        _ => Ok(()),
    }
}
