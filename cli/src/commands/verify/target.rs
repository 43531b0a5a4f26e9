//! From what a person names to evidence.

use cloister_app_compose::{AppId, InstanceId};
use cloister_evidence::EventLog;
use cloister_evidence::report_data::padded;
use cloister_management_api::v20260121::CvmInfo;
use cloister_verifier::Clock;
use cloister_verifier::appraisal::{Connection, Evidence, Expectations, Nonce};
use url::Url;

use super::fetch::{Answer, fetch};
use super::{Case, certificate};
use crate::api::is_loopback;
use crate::commands::cvms::app_url;
use crate::commands::follow;
use crate::commands::up::DEFAULT_HTTPS;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Port of the guest agent.
const AGENT_PORT: u16 = 8090;
/// Where ingresses elsewhere take TLS.
const HTTPS_PORT: u16 = 443;

/// Gets evidence over a nonce from a target, which says what is expected where nothing else does.
pub(super) async fn capture(
    session: &Session,
    target: &str,
    https_port: Option<u16>,
    nonce: Vec<u8>,
    expectations: &mut Expectations,
    clock: &Clock,
) -> Result<Case, Failure> {
    let (url, answer) = if target.contains("://") {
        let url = document(address(target)?);
        let answer = fetch(&url, &nonce).await?;
        (url, answer)
    } else {
        from_cvm(session, target, https_port, &nonce, expectations).await?
    };
    expectations.nonce = padded(&nonce).map(Nonce::Own);
    let name = Name::of(&url);
    name.expect(expectations, &answer.document.event_log);
    let (connection, certificate_chain) = match &answer.certificate {
        Some(der) => (
            certificate::connected(der, name.ends_at_agent()),
            Some(pem::encode(&pem::Pem::new("CERTIFICATE", der.as_slice()))),
        ),
        None => (Connection::Terminated, None),
    };
    let attested = matches!(connection, Connection::Attested(_));
    Ok(Case {
        evidence: Evidence { document: answer.document, connection },
        nonce: Some(hex::encode(nonce)),
        certificate_chain: certificate_chain.filter(|_| attested),
        collateral: None,
        captured_at: clock.now(),
    })
}

/// The address of an app, as a person writes it.
pub(super) fn address(text: &str) -> Result<Url, Failure> {
    let wrong = |reason: &str| {
        Failure::usage(format!("{text} {reason}")).hint("write it like https://APP_ID-PORTs.apps.example.org")
    };
    let url = Url::parse(text).map_err(|_| wrong("is not a URL"))?;
    let bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    if !matches!(url.scheme(), "https" | "http") || !url.has_host() || !bare {
        return Err(wrong("is not the address of an app"));
    }
    Ok(url)
}

/// Where a CVM is, as the API says it.
pub(super) struct Place {
    app_id: AppId,
    /// Domain of the ingress.
    domain: String,
    /// Where the app answers as a whole.
    base: Url,
    /// Port of the ingress for TLS.
    tls_port: u16,
}

impl Place {
    /// Asks the API which app a name means and where it is; that app is expected, unless something else is.
    pub(super) async fn of(
        session: &Session,
        name: &str,
        https_port: Option<u16>,
        expectations: &mut Expectations,
    ) -> Result<Self, Failure> {
        let (_, cvm) = follow::detail(&session.client()?, name).await?;
        let app_id = match name.parse::<AppId>() {
            // What the person typed counts, not what the server makes of it.
            Ok(typed) if cvm.instance_id.is_none_or(|id| id.as_bytes() != typed.as_bytes()) => typed,
            _ => cvm.app_id.ok_or_else(|| no_address(&cvm))?,
        };
        if let Ok(typed) = name.parse::<InstanceId>()
            && cvm.instance_id == Some(typed)
        {
            expectations.instance_id.get_or_insert(typed);
        }
        expectations.app_id.get_or_insert(app_id);
        let base = app_url(&cvm).and_then(|url| Url::parse(&url).ok()).ok_or_else(|| no_address(&cvm))?;
        let domain = base.host_str().and_then(|host| host.split_once('.')).ok_or_else(|| no_address(&cvm))?.1;
        let tls_port =
            https_port.or_else(|| base.port_or_known_default().filter(|_| base.scheme() == "https"));
        let tls_port = tls_port.unwrap_or(if is_loopback(&base) { DEFAULT_HTTPS.port() } else { HTTPS_PORT });
        Ok(Self { app_id, domain: domain.to_owned(), tls_port, base })
    }

    /// Where TLS ends in the guest, at this port of it.
    pub(super) fn inside(&self, port: u16) -> Result<Url, Failure> {
        address(&format!("https://{}-{port}s.{}:{}", self.app_id, self.domain, self.tls_port))
    }
}

/// Asks the guest itself for evidence, which never comes from the API.
async fn from_cvm(
    session: &Session,
    name: &str,
    https_port: Option<u16>,
    nonce: &[u8],
    expectations: &mut Expectations,
) -> Result<(Url, Answer), Failure> {
    let place = Place::of(session, name, https_port, expectations).await?;
    let direct = document(place.inside(AGENT_PORT)?);
    match fetch(&direct, nonce).await {
        Ok(answer) => Ok((direct, answer)),
        Err(failure) if failure.exit == Exit::Unreachable && place.base.scheme() == "http" => {
            session.output.say(&format!(
                "{}: asking through the operator's ingress instead, without TLS; name its TLS port by --https-port \
                 to ask the guest itself",
                failure.chain()
            ));
            let Place { app_id, domain, base, .. } = &place;
            let port = base.port_or_known_default().unwrap_or(80);
            let plain = document(address(&format!("http://{app_id}-{AGENT_PORT}.{domain}:{port}"))?);
            fetch(&plain, nonce).await.map(|answer| (plain, answer))
        }
        Err(failure) => Err(failure),
    }
}

/// Where the evidence is, if an address does not say it.
fn document(mut url: Url) -> Url {
    if url.path() == "/" {
        url.set_path("/attestation");
    }
    url
}

fn no_address(cvm: &CvmInfo) -> Failure {
    Failure::new(Exit::NotFound, format!("{} has no public address", cvm.name))
        .hint("start it first: cloister cvms start NAME")
}

/// What the host name of an ingress says: `<app_id or instance_id>[-<port>][s|g].<domain>`.
pub(super) struct Name {
    id: Option<[u8; 20]>,
    passthrough: bool,
    port: Option<u16>,
}

impl Name {
    pub(super) fn of(url: &Url) -> Self {
        let label = url.host_str().unwrap_or_default().split('.').next().unwrap_or_default();
        let (id, rest) = label.split_at_checked(40).unwrap_or(("", ""));
        let mut bytes = [0; 20];
        let is_id = hex::decode_to_slice(id, &mut bytes).is_ok();
        let digits = rest.strip_suffix('s').unwrap_or(rest);
        Self {
            id: is_id.then_some(bytes),
            passthrough: is_id && rest.ends_with('s'),
            port: digits.strip_prefix('-').and_then(|port| port.parse().ok()),
        }
    }

    /// Whether TLS to this name ends in the guest agent, whose certificate carries evidence. Apps may have
    /// other certificates on ports of their own.
    const fn ends_at_agent(&self) -> bool {
        self.passthrough && matches!(self.port, Some(AGENT_PORT))
    }

    /// Expects what the name names, when nothing was said. The event log that came is asked whether that is an
    /// application or an instance; either way it is the verified log that must say so in the end.
    pub(super) fn expect(&self, expectations: &mut Expectations, event_log: &str) {
        let Some(id) =
            self.id.filter(|_| expectations.app_id.is_none() && expectations.instance_id.is_none())
        else {
            return;
        };
        let log = EventLog::parse(event_log).unwrap_or_default();
        let is_instance = log
            .entries()
            .iter()
            .any(|event| event.event == "instance-id" && event.event_payload == hex::encode(id));
        if is_instance {
            expectations.instance_id = Some(InstanceId::from_bytes(id));
        } else {
            expectations.app_id = Some(AppId::from_bytes(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";

    fn name(host: &str) -> (bool, bool, bool) {
        let name = Name::of(&Url::parse(&format!("https://{host}")).unwrap());
        (name.id.is_some(), name.passthrough, name.ends_at_agent())
    }

    #[test]
    fn host_names_say_where_tls_ends() {
        assert_eq!(name(&format!("{ID}-8090s.apps.localhost:8743")), (true, true, true));
        assert_eq!(name(&format!("{ID}-8443s.apps.localhost")), (true, true, false));
        assert_eq!(name(&format!("{ID}-8090.apps.localhost")), (true, false, false));
        assert_eq!(name(&format!("{ID}.apps.localhost")), (true, false, false));
        assert_eq!(name("example.org"), (false, false, false));
        assert_eq!(name(&format!("{}s.example.org", "z".repeat(40))), (false, false, false));
    }

    #[test]
    fn the_path_of_the_evidence_is_added_to_a_bare_address() {
        let path = |text| document(address(text).unwrap()).path().to_owned();
        assert_eq!(path("https://a.example"), "/attestation");
        assert_eq!(path("https://a.example/x/evidence"), "/x/evidence");
        for text in ["ftp://a.example", "https://u:p@a.example", "https://", "://"] {
            assert_eq!(address(text).unwrap_err().exit, Exit::Usage, "{text}");
        }
    }
}
