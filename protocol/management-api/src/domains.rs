//! Whether a tenant's own domain leads to a CVM.

use cloister_app_compose::members;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

members! {
    /// Body of `POST /cvms/{cvm_id}/customize-domain-diagnose`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct DiagnoseDomainsRequest {
        /// Domains to look at, 1 to 20.
        pub domains: Vec<DomainCheckRequest>,
    }
}

members! {
    /// A domain that should lead to a port of a CVM.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct DomainCheckRequest {
        /// Domain, or `*.` and a domain.
        #[schema(example = "app.example.org")]
        pub domain: String,
        /// Port of the CVM, 1 to 65535.
        #[schema(minimum = 1, maximum = 65535)]
        pub port: u32,
    }
}

/// What was found, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DiagnosisResponse)]
pub struct DomainDiagnosis {
    /// One element for each domain.
    pub results: Vec<DomainDiagnosisResult>,
}

/// What was found about a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainDiagnosisResult {
    /// Domain as it was asked for.
    pub domain: String,
    /// Port of the CVM.
    pub port: u16,
    /// What there should be, and is.
    pub records: Vec<DnsRecordResult>,
    /// Whether the domain leads to the CVM.
    pub is_valid: bool,
    /// Who may issue certificates for it; only for information.
    pub caa_check: Option<CaaCheckResult>,
}

/// A DNS record that there should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DnsRecordResult {
    /// `CNAME` or `TXT`.
    pub record_type: String,
    /// Name that was asked for.
    pub query_name: String,
    /// What it should be.
    pub expected_value: String,
    /// What it is.
    pub actual_value: Option<String>,
    /// Whether it is as it should be.
    pub is_valid: bool,
    /// Whether the name is that of an earlier time.
    pub is_deprecated: bool,
    /// What to do, for people.
    pub warning_message: Option<String>,
}

/// Who may issue certificates for a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CaaCheckResult {
    /// Records, in their presentation form.
    pub caa_records: Vec<String>,
    /// The account that they bind issuing to.
    pub accounturi: Option<String>,
    /// Accounts that were asked of the CVM; this service fetches nothing from CVMs.
    pub acme_fetches: Vec<AcmeFetchResult>,
    /// The account that issues.
    pub expected_uri: Option<String>,
    /// Whether no record stands in the way of the CVM's account.
    pub is_match: bool,
    /// What that means, for people.
    pub info_message: Option<String>,
}

/// An account that was asked of a CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcmeFetchResult {
    /// Address that was asked.
    pub url: String,
    /// Whether it answered.
    pub http_ok: bool,
    /// The account.
    pub uri: Option<String>,
    /// Status of the answer.
    pub status_code: Option<u16>,
    /// Why there is none.
    pub error: Option<String>,
}
