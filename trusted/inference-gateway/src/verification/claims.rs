//! What a session tells of a service that was verified.

use std::collections::BTreeMap;

use cloister_aci::report::Bound;
use cloister_aci::session::{Claim, ClaimSource, ClaimStatus, Claims, Fact};
use cloister_evidence::AppInfo;
use cloister_verifier::appraisal::{Appraisal, ClaimId};
use serde_json::{Value, json};

use super::aci_service::TEE_TYPE;
use super::machine::fact;
use super::provenance::Provenance;
use super::software::By;

/// What was verified.
pub(super) struct Known<'a> {
    pub(super) appraisal: &'a Appraisal,
    pub(super) bound: &'a Bound,
    /// Why the software is accepted.
    pub(super) by: By,
    pub(super) measured: &'a AppInfo,
    pub(super) provenance: &'a Provenance,
    /// The root that vouches for the keys, hex.
    pub(super) root: &'a str,
    /// The application, `app-id:0x…`.
    pub(super) subject: &'a str,
    /// The platform's state in its vendor's words.
    pub(super) tcb: &'a str,
}

fn claim(status: ClaimStatus, source: ClaimSource, reason: impl Into<String>) -> Claim {
    Claim { reason: Some(reason.into()), source: Some(source), status }
}

impl Known<'_> {
    /// Who the service proved to be.
    pub(super) fn identity(&self) -> Value {
        json!({
            "subject": self.subject,
            "compose_hash": self.measured.compose_hash.map(|hash| hex::encode(hash.as_bytes())),
            "instance_id": self.measured.instance_id.map(|id| hex::encode(id.as_bytes())),
            "workload_keyset_digest": self.bound.digest,
        })
    }

    /// What was found.
    pub(super) fn claims(&self) -> Claims {
        let (source, reason) = if self.appraisal.hardware {
            (ClaimSource::HardwareProven, "a TDX quote was verified up to its vendor's root")
        } else {
            (
                ClaimSource::OperatorAsserted,
                "only a development root of the operator vouches: no hardware protects this",
            )
        };
        let tcb = self.tcb;
        let is_current = if tcb == "UpToDate" { ClaimStatus::Asserted } else { ClaimStatus::Refuted };
        let derived = |status, reason: &str| claim(status, ClaimSource::VerifierDerived, reason);
        Claims {
            extra: self.facts(),
            os_known_good: derived(
                ClaimStatus::Asserted,
                "the machine booted firmware, kernel and system that the operator accepts",
            ),
            serving_software_known_good: derived(ClaimStatus::Asserted, self.by.as_str()),
            tcb_up_to_date: derived(is_current, &format!("the vendor calls the platform {tcb}")),
            tee_attested: claim(ClaimStatus::Asserted, source, reason),
            ..Claims::default()
        }
    }

    fn facts(&self) -> BTreeMap<String, Fact> {
        let of = |claim, name| fact(self.appraisal, claim, name);
        let provider = self.measured.key_provider.as_ref();
        let texts = [
            ("tee_type", Some(TEE_TYPE.to_owned())),
            ("trust_root", of(ClaimId::Signature, "trust root")),
            ("tcb_status", Some(self.tcb.to_owned())),
            ("tcb_advisories", of(ClaimId::Tcb, "advisories")),
            ("mrtd", of(ClaimId::Boot, "MRTD")),
            ("rtmr0", of(ClaimId::Boot, "RTMR0")),
            ("rtmr1", of(ClaimId::Boot, "RTMR1")),
            ("rtmr2", of(ClaimId::Boot, "RTMR2")),
            ("app_id", self.measured.app_id.map(|id| hex::encode(id.as_bytes()))),
            ("compose_hash", self.measured.compose_hash.map(|hash| hex::encode(hash.as_bytes()))),
            ("os_image_hash", of(ClaimId::Boot, "os_image_hash").or_else(|| self.measured_image())),
            ("instance_id", self.measured.instance_id.map(|id| hex::encode(id.as_bytes()))),
            ("key_provider_id", provider.map(|provider| provider.id.clone())),
            ("kms_root_public_key", Some(self.root.to_owned())),
            ("workload_keyset_digest", Some(self.bound.digest.clone())),
            ("source_repo_url", self.provenance.repo_url.clone()),
            ("source_repo_commit", self.provenance.repo_commit.clone()),
            ("source_image_digest", self.provenance.image_digest.clone()),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Fact::Text(text?))));
        texts.chain([("hardware".to_owned(), Fact::Flag(self.appraisal.hardware))]).collect()
    }

    /// The image that the accepted boot measured.
    fn measured_image(&self) -> Option<String> {
        self.measured.os_image_hash.map(|hash| hex::encode(hash.as_bytes()))
    }
}
