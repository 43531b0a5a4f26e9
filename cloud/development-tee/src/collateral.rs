//! What the vendor says about its platforms: TCB information, the quoting enclave's identity, revocations.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::certificates::{Role, revocation_list};
use crate::platform::QuotingEnclave;
use crate::vendor::{Ppid, SecurityVersions, Vendor, serial_number};
use crate::{TeeError, report};

/// How long collateral is good for.
const LIFETIME: SignedDuration = SignedDuration::from_hours(30 * 24);
const DAY_SECONDS: i64 = 24 * 3600;
const EVALUATION_NUMBER: u32 = 20;
/// Since when the levels hold; any day in the past.
const LEVEL_DATE: &str = "2026-01-01T00:00:00Z";

/// Signed documents that go with a quote, in the members that verifiers know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VendorCollateral {
    /// PEM chain of the platforms' revocation list.
    pub pck_crl_issuer_chain: String,
    /// Hex DER.
    pub root_ca_crl: String,
    /// Hex DER.
    pub pck_crl: String,
    /// PEM.
    pub tcb_info_issuer_chain: String,
    /// Exact signed JSON text.
    pub tcb_info: String,
    /// Hex, r ‖ s.
    pub tcb_info_signature: String,
    /// PEM.
    pub qe_identity_issuer_chain: String,
    /// Exact signed JSON text.
    pub qe_identity: String,
    /// Hex, r ‖ s.
    pub qe_identity_signature: String,
}

/// One answer of a provisioning certificate caching service (platform reference, section 5.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PccsBody {
    /// Body, JSON or DER.
    pub body: Vec<u8>,
    /// PEM chain of its issuer, for the header.
    pub issuer_chain: String,
}

/// What can be chosen about collateral. [`CollateralOptions::at`] is what an installation serves.
#[derive(Debug, Clone)]
pub struct CollateralOptions {
    /// Issue date of every document.
    pub issued_at: Timestamp,
    /// Next update of the two signed documents.
    pub next_update: Timestamp,
    /// Next update of the revocation lists.
    pub revocations_next_update: Timestamp,
    /// Kind of platform that it is for; `None` for the vendor's.
    pub fmspc: Option<[u8; 6]>,
    /// Versions of the only level; `None` for those that the vendor certifies.
    pub versions: Option<SecurityVersions>,
    /// Status of that level, in Intel's spelling.
    pub status: String,
    /// Advisories of that level.
    pub advisory_ids: Vec<String>,
    /// Status of the quoting enclave's only level.
    pub enclave_status: String,
    /// The quoting enclave that it describes.
    pub enclave: QuotingEnclave,
    /// Platforms whose certificate is revoked.
    pub revoked_platforms: Vec<Ppid>,
    /// Whether the platform authority is revoked.
    pub platform_authority_revoked: bool,
    /// Whether the signer of the two documents is revoked.
    pub tcb_signing_revoked: bool,
}

impl CollateralOptions {
    /// Everything in order, from the day before `now` for thirty days: a verifier whose clock is slow
    /// accepts it, and what is served within one day has the same dates.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        let day = now.as_second().div_euclid(DAY_SECONDS).saturating_mul(DAY_SECONDS);
        let midnight = Timestamp::from_second(day).unwrap_or(now);
        let issued_at = midnight.saturating_sub(SignedDuration::from_hours(24)).unwrap_or(midnight);
        let next_update = issued_at.saturating_add(LIFETIME).unwrap_or(midnight);
        Self {
            issued_at,
            next_update,
            revocations_next_update: next_update,
            fmspc: None,
            versions: None,
            status: "UpToDate".to_owned(),
            advisory_ids: Vec::new(),
            enclave_status: "UpToDate".to_owned(),
            enclave: QuotingEnclave::default(),
            revoked_platforms: Vec::new(),
            platform_authority_revoked: false,
            tcb_signing_revoked: false,
        }
    }
}

impl Vendor {
    /// The collateral of a moment, signed anew.
    pub fn collateral(&self, now: Timestamp) -> Result<VendorCollateral, TeeError> {
        self.collateral_with(&CollateralOptions::at(now))
    }

    /// Collateral with something else in it, for whoever tests a verifier.
    pub fn collateral_with(&self, options: &CollateralOptions) -> Result<VendorCollateral, TeeError> {
        let (tcb_info, qe_identity) = (self.tcb_info(options), qe_identity(options));
        Ok(VendorCollateral {
            pck_crl_issuer_chain: [self.platform_ca().pem.as_str(), &self.root().pem].concat(),
            root_ca_crl: hex::encode(self.root_revocations(options)?),
            pck_crl: hex::encode(self.platform_revocations(options)?),
            tcb_info_issuer_chain: self.tcb_chain(),
            tcb_info_signature: self.sign(&tcb_info)?,
            tcb_info,
            qe_identity_issuer_chain: self.tcb_chain(),
            qe_identity_signature: self.sign(&qe_identity)?,
            qe_identity,
        })
    }

    /// `tdx/certification/v4/tcb`; `None` for another kind of platform than the vendor's.
    pub fn pccs_tcb(&self, fmspc: &str, now: Timestamp) -> Result<Option<PccsBody>, TeeError> {
        if !fmspc.eq_ignore_ascii_case(&hex::encode(self.options().fmspc)) {
            return Ok(None);
        }
        let tcb_info = self.tcb_info(&CollateralOptions::at(now));
        self.signed_body("tcbInfo", &tcb_info).map(Some)
    }

    /// `tdx/certification/v4/qe/identity`.
    pub fn pccs_qe_identity(&self, now: Timestamp) -> Result<PccsBody, TeeError> {
        self.signed_body("enclaveIdentity", &qe_identity(&CollateralOptions::at(now)))
    }

    /// `sgx/certification/v4/pckcrl`: DER.
    pub fn pccs_pck_crl(&self, now: Timestamp) -> Result<PccsBody, TeeError> {
        Ok(PccsBody {
            body: self.platform_revocations(&CollateralOptions::at(now))?,
            issuer_chain: [self.platform_ca().pem.as_str(), &self.root().pem].concat(),
        })
    }

    /// `sgx/certification/v4/rootcacrl`: DER, which caching services send as hex text.
    pub fn root_crl(&self, now: Timestamp) -> Result<Vec<u8>, TeeError> {
        self.root_revocations(&CollateralOptions::at(now))
    }

    fn signed_body(&self, member: &str, document: &str) -> Result<PccsBody, TeeError> {
        let signature = self.sign(document)?;
        // The document's text stays as it was signed.
        let body = format!(r#"{{"{member}":{document},"signature":"{signature}"}}"#).into_bytes();
        Ok(PccsBody { body, issuer_chain: self.tcb_chain() })
    }

    fn root_revocations(&self, options: &CollateralOptions) -> Result<Vec<u8>, TeeError> {
        let authorities = [
            (options.platform_authority_revoked, Role::PlatformCa),
            (options.tcb_signing_revoked, Role::TcbSigning),
        ];
        let revoked: Vec<_> = authorities
            .iter()
            .filter(|(revoked, _)| *revoked)
            .map(|(_, role)| role.serial_number())
            .collect();
        let (from, until) = (options.issued_at, options.revocations_next_update);
        revocation_list(&self.root().issuer()?, from, until, &revoked)
    }

    fn platform_revocations(&self, options: &CollateralOptions) -> Result<Vec<u8>, TeeError> {
        let revoked: Vec<_> = options.revoked_platforms.iter().map(serial_number).collect();
        let (from, until) = (options.issued_at, options.revocations_next_update);
        revocation_list(&self.platform_ca().issuer()?, from, until, &revoked)
    }

    fn tcb_info(&self, options: &CollateralOptions) -> String {
        let versions = options.versions.unwrap_or(self.options().versions);
        let fmspc = options.fmspc.unwrap_or(self.options().fmspc);
        json!({
            "id": "TDX",
            "version": 3,
            "issueDate": date(options.issued_at),
            "nextUpdate": date(options.next_update),
            "fmspc": hex::encode_upper(fmspc),
            "pceId": hex::encode_upper(self.options().pce_id),
            "tcbType": 0,
            "tcbEvaluationDataNumber": EVALUATION_NUMBER,
            "tdxModule": {
                "mrsigner": hex::encode_upper(report::MODULE_SIGNER),
                "attributes": hex::encode_upper(report::MODULE_ATTRIBUTES),
                "attributesMask": "FFFFFFFFFFFFFFFF",
            },
            "tdxModuleIdentities": [],
            "tcbLevels": [level(
                &json!({
                    "sgxtcbcomponents": components(versions.cpu),
                    "pcesvn": versions.pce,
                    "tdxtcbcomponents": components(versions.tdx),
                }),
                &options.status,
                &options.advisory_ids,
            )],
        })
        .to_string()
    }
}

fn qe_identity(options: &CollateralOptions) -> String {
    let enclave = &options.enclave;
    json!({
        "id": "TD_QE",
        "version": 2,
        "issueDate": date(options.issued_at),
        "nextUpdate": date(options.next_update),
        "tcbEvaluationDataNumber": EVALUATION_NUMBER,
        "miscselect": hex::encode_upper(enclave.misc_select),
        "miscselectMask": "FFFFFFFF",
        "attributes": hex::encode_upper(enclave.attributes),
        // Whether it can be debugged counts, its extended features do not.
        "attributesMask": "FBFFFFFFFFFFFFFF0000000000000000",
        "mrsigner": hex::encode_upper(enclave.mr_signer),
        "isvprodid": enclave.product_id,
        "tcbLevels": [level(&json!({ "isvsvn": enclave.security_version }), &options.enclave_status, &[])],
    })
    .to_string()
}

fn level(tcb: &Value, status: &str, advisory_ids: &[String]) -> Value {
    let mut level = json!({ "tcb": tcb, "tcbDate": LEVEL_DATE, "tcbStatus": status });
    if let (Some(members), false) = (level.as_object_mut(), advisory_ids.is_empty()) {
        members.insert("advisoryIDs".to_owned(), json!(advisory_ids));
    }
    level
}

fn components(versions: [u8; 16]) -> Value {
    versions.iter().map(|svn| json!({ "svn": svn })).collect()
}

/// Seconds, as the vendor's documents write them.
fn date(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}
