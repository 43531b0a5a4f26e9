//! The walk of a relying party: certificate → quote → boot measurements → event log → compose document →
//! application.
//!
//! Each step is a [`Claim`] with its evidence. A step that fails does not end the walk: what can still be
//! judged is, and what rests on the failed step is not checked. Nothing holds on unverified data, which the
//! types of this module see to: whatever is said about a machine needs a proven quote, whatever is said
//! about its application needs a proven log.
//!
//! A claim without an expectation is *reported, not compared*, and does not make the verdict false. That is
//! for people to see: evidence that is compared with nothing shows that some genuine machine runs some
//! application.

mod application;
mod boot;
mod bundle;
mod certificate;
mod claim;
mod enclave;
mod events;
mod forms;
mod input;
mod quote;
#[cfg(test)]
mod tests;

pub use bundle::{Bundle, InvalidBundle, MAX_BUNDLE_BYTES};
pub use claim::{Appraisal, Claim, ClaimId, Fact, Outcome, Subject};
pub use input::{
    AttestedCertificate, Connection, Evidence, Expectations, ExpectedCompose, ExpectedRegisters, Nonce, Stage,
};

use std::sync::Arc;

use application::{Ground, groundless};
use cloister_evidence::AttestationDocument;
use forms::Material;
use jiff::Timestamp;
use quote::Verdict;

use crate::{Collateral, Verifier};

/// An appraisal, with what is needed to repeat it without a network.
#[derive(Debug, Clone)]
pub struct Appraised {
    /// The claims.
    pub appraisal: Appraisal,
    /// What the vendor said about the platform, when the quote was valid.
    pub collateral: Option<Arc<Collateral>>,
}

/// Judges evidence now, with collateral of the verifier's cache.
pub async fn appraise(verifier: &Verifier, evidence: &Evidence, expectations: &Expectations) -> Appraised {
    if let Some(appraised) = enclave(verifier, evidence, expectations, verifier.clock().now()) {
        return appraised;
    }
    let (material, document) = match Material::of(&evidence.document) {
        Ok(material) => {
            let verdict = verifier.quote(&material.quote).await;
            (Some(material), verdict)
        }
        Err(error) => (None, Err(error)),
    };
    let certificate = match certificate_of(evidence) {
        Some(certificate) => Some(verifier.quote(&certificate.quote).await),
        None => None,
    };
    let verdicts = Verdicts { document, certificate };
    walk(evidence, expectations, material.as_ref(), &verdicts, verifier.clock().now())
}

/// Judges evidence as of `at`, with the collateral that came with it and without a network.
#[must_use]
pub fn appraise_with(
    verifier: &Verifier,
    evidence: &Evidence,
    expectations: &Expectations,
    collateral: &Collateral,
    at: Timestamp,
) -> Appraised {
    if let Some(appraised) = enclave(verifier, evidence, expectations, at) {
        return appraised;
    }
    let (material, document) = match Material::of(&evidence.document) {
        Ok(material) => {
            let verdict = verifier.quote_with(&material.quote, collateral, at);
            (Some(material), verdict)
        }
        Err(error) => (None, Err(error)),
    };
    let certificate = certificate_of(evidence);
    let certificate = certificate.map(|of| verifier.quote_with(&of.quote, collateral, at));
    let verdicts = Verdicts { document, certificate };
    walk(evidence, expectations, material.as_ref(), &verdicts, at)
}

/// Whether the vendor's statements about the platform are needed to judge a document: Nitro documents carry
/// all their proof.
#[must_use]
pub fn needs_collateral(document: &AttestationDocument) -> bool {
    forms::nitro(document).is_none()
}

/// The appraisal of a Nitro document, when there is no quote.
fn enclave(
    verifier: &Verifier,
    evidence: &Evidence,
    expectations: &Expectations,
    at: Timestamp,
) -> Option<Appraised> {
    let document = forms::nitro(&evidence.document)?;
    let appraisal = enclave::appraise(verifier, document, evidence, expectations, at);
    Some(Appraised { appraisal, collateral: None })
}

const fn certificate_of(evidence: &Evidence) -> Option<&AttestedCertificate> {
    match &evidence.connection {
        Connection::Attested(certificate) | Connection::Recorded(certificate) => Some(certificate),
        Connection::None
        | Connection::Unattested(_)
        | Connection::Terminated
        | Connection::JudgedElsewhere => None,
    }
}

/// What came of the quotes.
struct Verdicts {
    document: Verdict,
    certificate: Option<Verdict>,
}

/// The walk itself: no I/O, no clock.
fn walk(
    evidence: &Evidence,
    expectations: &Expectations,
    material: Option<&Material>,
    verdicts: &Verdicts,
    at: Timestamp,
) -> Appraised {
    let document = &evidence.document;
    let verdict = &verdicts.document;
    let (vm_config, log) = material.map_or(("", ""), |of| (of.vm_config.as_str(), of.event_log.as_str()));
    let (signature, quote) = quote::signature(verdict, expectations);
    let quote = quote.as_ref();
    let (boot, booted) = boot::judge(quote, vm_config, &expectations.registers);
    let (event_log, log) = events::replay(quote, log);
    let (event_names, events) = events::names(log.as_ref(), expectations.stage);
    let events = events.as_ref();
    let ground = quote.zip(events).map(|(quote, events)| Ground { quote, events, booted });
    let ground = ground.as_ref();
    let on_ground = |id, judge: &dyn Fn(&Ground<'_>) -> Claim| ground.map_or_else(|| groundless(id), judge);

    let claims = vec![
        certificate::judge(&evidence.connection, verdicts.certificate.as_ref(), quote, events, at),
        quote::freshness(
            quote.map(|quote| &quote.verified.report_data),
            &document.report_data,
            expectations.nonce.as_ref(),
        ),
        signature,
        quote::tcb(quote, expectations),
        quote::debug(verdict, quote),
        boot,
        event_log,
        event_names,
        on_ground(ClaimId::Compose, &|ground| {
            application::compose(ground, document, expectations.compose.as_ref())
        }),
        on_ground(ClaimId::AppId, &|ground| application::app_id(ground, expectations.app_id)),
        on_ground(ClaimId::InstanceId, &|ground| application::instance_id(ground, expectations.instance_id)),
        on_ground(ClaimId::OsImage, &|ground| application::os_image(ground, expectations.os_image_hash)),
        on_ground(ClaimId::KeyProvider, &|ground| {
            application::key_provider(ground, expectations.key_provider_id.as_deref())
        }),
        on_ground(ClaimId::ApplicationEvents, &application::events),
    ];
    let subject = ground.map(|ground| Subject {
        app_id: ground.app_id().ok(),
        compose_hash: ground.compose_hash().ok(),
        instance_id: ground.instance_id(),
        os_image_hash: ground.os_image_hash(),
        device_id: Some(hex::encode(ground.quote.verified.device_id)),
    });
    let hardware = quote.is_some_and(|quote| quote.verified.trust_root.is_hardware());
    Appraised {
        appraisal: Appraisal::new(claims, hardware, at, subject),
        collateral: verdict.as_ref().ok().map(|verified| Arc::clone(&verified.collateral)),
    }
}
