//! The built-in rules.

use cloister_kms_api::admin::{PlatformRules, PolicyDocument};
use cloister_kms_api::{Hex, KmsError, KmsErrorCode};
use cloister_verifier::{TcbStatus, TrustRoot};

use super::{BootInfo, Grant, Question};

/// Decides by `policy`. The platform is judged first: what a bad one measured is not worth a look.
pub(crate) fn decide(
    policy: &PolicyDocument,
    question: Question,
    boot: &BootInfo,
) -> Result<Grant, KmsError> {
    platform(&policy.platform, boot)?;
    image(&policy.platform, question, boot)?;
    match question {
        Question::App => decide_app(policy, boot)?,
        Question::Kms => kms(&policy.platform, boot)?,
    }
    Ok(Grant::default())
}

/// A platform that its vendor has revoked proves nothing, whatever an authority says.
pub(super) fn refuse_revoked(boot: &BootInfo) -> Result<(), KmsError> {
    if boot.tcb_status == TcbStatus::Revoked {
        return Err(unauthorized("the platform's TCB status Revoked is not allowed"));
    }
    Ok(())
}

fn platform(rules: &PlatformRules, boot: &BootInfo) -> Result<(), KmsError> {
    refuse_revoked(boot)?;
    let status = boot.tcb_status.to_string();
    if !rules.allowed_tcb_statuses.contains(&status) {
        return Err(unauthorized(format!("the platform's TCB status {status} is not allowed")));
    }
    if let Some(id) = boot.advisory_ids.iter().find(|id| rules.denied_advisory_ids.contains(id)) {
        return Err(unauthorized(format!("security advisory {id} applies to the platform and is denied")));
    }
    if !allows(rules.devices.as_deref(), &boot.device_id) {
        return Err(unauthorized(format!("device {} is not allowed", hex::encode(boot.device_id))));
    }
    Ok(())
}

/// A KMS that is a process of a host has no image; one that has must have an allowed one.
///
/// What an application is, its image says: on hardware, one that nobody registered may have been made to
/// measure whatever its maker likes. Development platforms prove nothing in any case.
fn image(rules: &PlatformRules, question: Question, boot: &BootInfo) -> Result<(), KmsError> {
    let Some(images) = rules.os_images.as_deref() else {
        return if question == Question::Kms || boot.trust_root == TrustRoot::Development {
            Ok(())
        } else {
            Err(not_found("no images are registered, and on hardware only registered ones get keys"))
        };
    };
    match &boot.os_image_hash {
        Some(hash) if allows(Some(images), hash.as_bytes()) => Ok(()),
        Some(hash) => Err(not_found(format!("image {hash} is not registered"))),
        None if question == Question::Kms => Ok(()),
        None => Err(not_found("the machine has no image, and only registered ones get keys")),
    }
}

/// Whether the application may run its document.
pub(crate) fn decide_app(policy: &PolicyDocument, boot: &BootInfo) -> Result<(), KmsError> {
    let (Some(app_id), Some(compose_hash)) = (boot.app_id, boot.compose_hash) else {
        return Err(not_found("the machine measured no application"));
    };
    let documents = policy
        .apps
        .get(&app_id)
        .ok_or_else(|| not_found(format!("application {app_id} is not registered")))?;
    if !documents.contains(&compose_hash) {
        return Err(not_found(format!(
            "compose hash {compose_hash} is not registered for application {app_id}"
        )));
    }
    Ok(())
}

fn kms(rules: &PlatformRules, boot: &BootInfo) -> Result<(), KmsError> {
    if allows(Some(&rules.kms_measurements), &boot.mr_aggregated) {
        return Ok(());
    }
    Err(not_found(format!("KMS measurement {} is not registered", hex::encode(boot.mr_aggregated))))
}

/// Lengths count: nothing is padded.
fn allows(list: Option<&[Hex]>, value: &[u8; 32]) -> bool {
    list.is_none_or(|list| list.iter().any(|listed| listed.as_ref() == value))
}

fn unauthorized(reason: impl Into<String>) -> KmsError {
    KmsError::new(KmsErrorCode::Unauthorized, reason)
}

fn not_found(reason: impl Into<String>) -> KmsError {
    KmsError::new(KmsErrorCode::MeasurementNotFound, reason)
}

/// Most entries of a list.
const MAX_ENTRIES: usize = 10_000;
/// Longest name of an advisory, in bytes.
const MAX_ADVISORY_BYTES: usize = 64;

/// Why rules are not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRules {
    /// An entry that nothing can ever be equal to.
    #[error("{list} must be 32 bytes each, in hex")]
    Length {
        /// Name of the list.
        list: &'static str,
    },
    /// A list that is too long.
    #[error("a list has more than {MAX_ENTRIES} entries")]
    TooMany,
    /// Not a status, or one that is never accepted.
    #[error("{0:?} is no TCB status that can be allowed")]
    TcbStatus(String),
    /// Not an advisory.
    #[error("an advisory id is empty or longer than {MAX_ADVISORY_BYTES} bytes")]
    Advisory,
}

/// Checks rules before they are taken: an entry with a typing error should not wait for its first caller.
pub(crate) fn check_platform_rules(rules: &PlatformRules) -> Result<(), InvalidRules> {
    let lists = [
        ("osImages", rules.os_images.as_deref().unwrap_or_default()),
        ("devices", rules.devices.as_deref().unwrap_or_default()),
        ("kmsMeasurements", &rules.kms_measurements),
    ];
    for (list, entries) in lists {
        if entries.iter().any(|entry| entry.as_ref().len() != 32) {
            return Err(InvalidRules::Length { list });
        }
    }
    let names = [rules.allowed_tcb_statuses.len(), rules.denied_advisory_ids.len()];
    if lists.iter().map(|(_, entries)| entries.len()).chain(names).any(|length| length > MAX_ENTRIES) {
        return Err(InvalidRules::TooMany);
    }
    for status in &rules.allowed_tcb_statuses {
        if status.parse().ok().is_none_or(|status: TcbStatus| status == TcbStatus::Revoked) {
            return Err(InvalidRules::TcbStatus(status.chars().take(64).collect()));
        }
    }
    let sound = |id: &String| (1..=MAX_ADVISORY_BYTES).contains(&id.len());
    if rules.denied_advisory_ids.iter().all(sound) { Ok(()) } else { Err(InvalidRules::Advisory) }
}
