//! `POST /cvms/{cvm_id}/customize-domain-diagnose`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{
    CaaCheckResult, DiagnoseDomainsRequest, DnsRecordResult, DomainDiagnosis, DomainDiagnosisResult,
    PlainError,
};
use futures_util::{StreamExt, stream};
use url::Host;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::input::Body;
use crate::api::responses::OnCvm;
use crate::api::scene::Scene;
use crate::api::target::Target;
use crate::api::view::View;
use crate::dns::{Dns, DnsError, RecordKind};

/// Most domains of a request.
const MAX_DOMAINS: usize = 20;
/// Domains that are looked at at a time; the rest waits.
const AT_A_TIME: usize = 10;
/// Diagnoses of a workspace at a time.
pub(in crate::api) const MAX_DIAGNOSES: usize = 2;
/// Longest domain, in bytes, so that a prefix finds room before it.
const MAX_DOMAIN: usize = 220;
/// Names that lead to no application.
const SPECIAL: [&str; 6] = ["arpa", "internal", "invalid", "local", "localhost", "onion"];

/// Diagnose custom domains of a CVM
///
/// Looks up whether each domain leads to the CVM: its CNAME has to be a name of the ingress, and a TXT record has
/// to name application and port. CAA records are shown for information; nothing is fetched from the CVM.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/customize-domain-diagnose", tag = "CVMs", operation_id = "diagnose_custom_domains",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body(content = DiagnoseDomainsRequest, example = json!({"domains": [{"domain": "app.example.org", "port": 8080}]})),
    responses(
        (status = 200, description = "What was found, in the order of the request", body = DomainDiagnosis),
        (status = 429, description = "Other diagnoses of the workspace are at work", body = PlainError),
        (status = 503, description = "The CVM's node has not told its domain", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn diagnose(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Body(request): Body<DiagnoseDomainsRequest>,
) -> ApiResult<Json<DomainDiagnosis>> {
    let domains = domains(&request)?;
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    let ingress = View::new(&api, &scene, &cvm).ingress_domain().ok_or_else(|| {
        let text = "The CVM's node has not told the domain of its ingress; try again when it is back";
        ApiError::plain(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(RETRY_AFTER_S)
    })?;
    let _slot = api.diagnoses.take(caller.workspace_id).ok_or_else(|| {
        let text = format!("{MAX_DIAGNOSES} diagnoses of this workspace are at work already; wait for one");
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
    })?;
    let ids = [Some(cvm.app_id.to_string()), cvm.instance_id.clone()];
    let expected = Expected { ingress, ids: ids.into_iter().flatten().collect() };
    let results = stream::iter(domains).map(|domain| diagnosis(&api.dns, domain, &expected));
    Ok(Json(DomainDiagnosis { results: results.buffered(AT_A_TIME).collect().await }))
}

/// A domain of a request, checked.
#[derive(Debug, PartialEq, Eq)]
struct Domain {
    /// As it was asked for.
    asked: String,
    /// In its ASCII form, without `*.`.
    name: String,
    is_wildcard: bool,
    port: u16,
}

fn domains(request: &DiagnoseDomainsRequest) -> ApiResult<Vec<Domain>> {
    let fault = |loc: &[&str], kind, message: &str| {
        ApiError::fault(&[&["body", "domains"], loc].concat(), kind, message)
    };
    if !(1..=MAX_DOMAINS).contains(&request.domains.len()) {
        return Err(fault(&[], "too_long", &format!("List should have 1 to {MAX_DOMAINS} items")));
    }
    let mut checked = Vec::with_capacity(request.domains.len());
    for (index, wanted) in request.domains.iter().enumerate() {
        let index = index.to_string();
        let port = u16::try_from(wanted.port).ok().filter(|port| *port != 0);
        let port =
            port.ok_or_else(|| fault(&[&index, "port"], "out_of_range", "Input should be from 1 to 65535"))?;
        let (name, is_wildcard) = domain_name(&wanted.domain).ok_or_else(|| {
            fault(
                &[&index, "domain"],
                "value_error",
                "Input should be a public domain such as app.example.org",
            )
        })?;
        checked.push(Domain { asked: wanted.domain.clone(), name, is_wildcard, port });
    }
    Ok(checked)
}

/// The ASCII form of a public domain, and whether it stands for all names below.
fn domain_name(text: &str) -> Option<(String, bool)> {
    let (rest, is_wildcard) = text.strip_prefix("*.").map_or((text, false), |rest| (rest, true));
    let Ok(Host::Domain(name)) = Host::parse(rest.strip_suffix('.').unwrap_or(rest)) else { return None };
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_public = name.contains('.') && !SPECIAL.contains(&last);
    (is_public && name.len() <= MAX_DOMAIN && name.split('.').all(is_label)).then_some((name, is_wildcard))
}

/// What leads to the CVM.
struct Expected {
    /// Domain of the ingress.
    ingress: String,
    /// Names of the CVM in TXT records, the application's first.
    ids: Vec<String>,
}

impl Expected {
    fn is_ingress(&self, target: &str) -> bool {
        let below = target.strip_suffix(&self.ingress);
        below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
    }

    fn addresses(&self, port: u16) -> impl Iterator<Item = String> {
        self.ids.iter().map(move |id| format!("{id}:{port}"))
    }
}

async fn diagnosis(dns: &Dns, domain: Domain, expected: &Expected) -> DomainDiagnosisResult {
    let Domain { asked, name, is_wildcard, port } = domain;
    let alias = if is_wildcard { format!("*.{name}") } else { name.clone() };
    let suffix = if is_wildcard { "-wildcard" } else { "" };
    let [current, legacy] =
        ["_dstack-app-address", "_tapp-address"].map(|prefix| format!("{prefix}{suffix}.{name}"));
    let (cname, txt, old, caa) = tokio::join!(
        dns.records(&alias, RecordKind::Cname),
        dns.records(&current, RecordKind::Txt),
        dns.records(&legacy, RecordKind::Txt),
        dns.records(&name, RecordKind::Caa),
    );
    let address = expected.addresses(port).next().unwrap_or_default();
    let is_address =
        |text: &str| expected.addresses(port).any(|known| known.eq_ignore_ascii_case(text.trim()));
    let mut records = vec![
        record("CNAME", alias, expected.ingress.clone(), &cname, |target| expected.is_ingress(target)),
        record("TXT", current, address.clone(), &txt, is_address),
    ];
    // Only mentioned where it is used.
    if old.as_ref().is_ok_and(|values| !values.is_empty()) {
        let mut record = record("TXT", legacy, address, &old, is_address);
        record.is_deprecated = true;
        record.warning_message =
            Some("This name is from an earlier time; publish the other TXT record".to_owned());
        records.push(record);
    }
    let has = |kind: &str| records.iter().any(|record| record.record_type == kind && record.is_valid);
    DomainDiagnosisResult {
        domain: asked,
        port,
        is_valid: has("CNAME") && has("TXT"),
        records,
        caa_check: caa.ok().map(caa_check),
    }
}

fn record(
    kind: &str,
    query_name: String,
    expected_value: String,
    found: &Result<Vec<String>, DnsError>,
    is_right: impl Fn(&str) -> bool,
) -> DnsRecordResult {
    let values = found.as_deref().unwrap_or_default();
    let is_valid = values.iter().any(|value| is_right(value));
    let warning_message = match found {
        Err(error) => Some(error.to_string()),
        Ok(_) if is_valid => None,
        Ok(_) => Some(format!("Publish {query_name} {kind} {expected_value}")),
    };
    DnsRecordResult {
        record_type: kind.to_owned(),
        actual_value: (!values.is_empty()).then(|| values.join(", ")),
        query_name,
        expected_value,
        is_valid,
        is_deprecated: false,
        warning_message,
    }
}

fn caa_check(caa_records: Vec<String>) -> CaaCheckResult {
    let accounturi = caa_records.iter().find_map(|record| {
        let rest = record.split_once("accounturi=")?.1;
        rest.split([';', '"', ' ']).next().filter(|uri| !uri.is_empty()).map(ToOwned::to_owned)
    });
    let info_message = match (&accounturi, caa_records.is_empty()) {
        (None, true) => "Any authority may issue certificates, unless a parent domain says otherwise",
        (None, false) => "Only the authorities that these records name may issue certificates",
        (Some(_), _) => {
            "Only this account may issue certificates: compare it with the account that the CVM uses"
        }
    };
    CaaCheckResult {
        is_match: accounturi.is_none(),
        caa_records,
        accounturi,
        acme_fetches: Vec::new(),
        expected_uri: None,
        info_message: Some(info_message.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_public_domains_are_looked_up() {
        for (text, expected) in [
            ("app.example.org", ("app.example.org", false)),
            ("App.Example.ORG.", ("app.example.org", false)),
            ("*.example.org", ("example.org", true)),
            ("bücher.example", ("xn--bcher-kva.example", false)),
        ] {
            let (name, is_wildcard) = expected;
            assert_eq!(domain_name(text), Some((name.to_owned(), is_wildcard)), "{text}");
        }
        let long = format!("{}.org", "a.".repeat(120));
        for text in [
            "",
            ".",
            "*.",
            "example",
            "localhost",
            "x.localhost",
            "db.internal",
            "1.0.0.127.in-addr.arpa",
            "127.0.0.1",
            "[::1]",
            "a..b",
            "*.*.org",
            "a.*.org",
            "a b.org",
            "http://a.org",
            "a.org/x",
            "a.org:53",
            &long,
            &format!("{}.org", "a".repeat(64)),
        ] {
            assert_eq!(domain_name(text), None, "{text}");
        }
    }

    #[test]
    fn the_ingress_is_its_domain_and_what_is_below() {
        let expected = Expected { ingress: "apps.example".into(), ids: vec![] };
        assert!(expected.is_ingress("apps.example") && expected.is_ingress("_.apps.example"));
        assert!(!expected.is_ingress("myapps.example") && !expected.is_ingress("apps.example.org"));
    }

    #[test]
    fn an_account_is_found_in_its_record() {
        let check = |records: &[&str]| caa_check(records.iter().map(ToString::to_string).collect());
        let bound = check(&["0 issue \"ca.example; accounturi=https://ca.example/acct/7; x=1\""]);
        assert_eq!((bound.accounturi.as_deref(), bound.is_match), (Some("https://ca.example/acct/7"), false));
        assert!(check(&[]).is_match && check(&["0 issue \"ca.example\""]).is_match);
    }

    proptest! {
        #[test]
        fn what_is_looked_up_is_a_name(text in "[*a-zA-Z0-9._:/@ ü-]{0,40}") {
            if let Some((name, _)) = domain_name(&text) {
                prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)));
                prop_assert_eq!(domain_name(&name), Some((name, false)));
            }
        }
    }
}
