//! Looking up what is published about a domain.

use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ResolveHosts, ResolverOpts};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tracing::{debug, warn};

/// Longest wait for one name.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// Wait for one answer of one server; there are two attempts.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);
/// Most records of a name that are looked at.
const MAX_RECORDS: usize = 10;
/// Longest text of a record, in characters.
const MAX_TEXT: usize = 256;

/// A kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Another name of the same.
    Cname,
    /// Text.
    Txt,
    /// Who may issue certificates.
    Caa,
}

impl RecordKind {
    const fn record_type(self) -> RecordType {
        match self {
            Self::Cname => RecordType::CNAME,
            Self::Txt => RecordType::TXT,
            Self::Caa => RecordType::CAA,
        }
    }
}

/// Why nothing is known of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DnsError {
    /// The operator's machine has no name server.
    #[error("this installation has no name server to ask")]
    NoServer,
    /// Nobody answered, or not in a form that can be read.
    #[error("no name server answered; try again, and check that the domain's servers are up")]
    NoAnswer,
}

/// Asks name servers; cheap to clone.
#[derive(Clone)]
pub struct Dns(Option<TokioResolver>);

impl Dns {
    /// Asks the servers that the operator's machine is configured with.
    pub(crate) fn system() -> Self {
        let built = TokioResolver::builder_tokio().and_then(|mut builder| {
            bounded(builder.options_mut());
            builder.build()
        });
        let failed = |error| warn!(%error, "no name server is configured: domains cannot be diagnosed");
        Self(built.map_err(failed).ok())
    }

    /// Asks one server.
    #[cfg(test)]
    pub(crate) fn at(server: std::net::SocketAddr) -> Self {
        use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
        use hickory_resolver::net::runtime::TokioRuntimeProvider;

        let mut connection = ConnectionConfig::udp();
        connection.port = server.port();
        let server = NameServerConfig::new(server.ip(), true, vec![connection]);
        let config = ResolverConfig::from_parts(None, vec![], vec![server]);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        bounded(builder.options_mut());
        Self(builder.build().ok())
    }

    /// The records of one kind that a name has, as people write them: at most ten, each cut to 256 characters,
    /// without control characters. The name is complete; none is tried in its place.
    pub(crate) async fn records(&self, name: &str, kind: RecordKind) -> Result<Vec<String>, DnsError> {
        let resolver = self.0.as_ref().ok_or(DnsError::NoServer)?;
        let mut name = Name::from_ascii(name).map_err(|_| DnsError::NoAnswer)?;
        name.set_fqdn(true);
        let lookup = resolver.lookup(name, kind.record_type());
        match tokio::time::timeout(LOOKUP_LIMIT, lookup).await {
            Ok(Ok(found)) => {
                let texts = found.answers().iter().filter_map(|record| text(&record.data, kind));
                Ok(texts.take(MAX_RECORDS).map(|text| shown(&text)).collect())
            }
            Ok(Err(error)) if error.is_no_records_found() || error.is_nx_domain() => Ok(Vec::new()),
            Ok(Err(error)) => {
                debug!(%error, "a name cannot be looked up");
                Err(DnsError::NoAnswer)
            }
            Err(_) => Err(DnsError::NoAnswer),
        }
    }
}

/// People look again after they changed something: nothing is kept.
fn bounded(options: &mut ResolverOpts) {
    options.cache_size = 0;
    options.attempts = 1;
    options.timeout = ATTEMPT_LIMIT;
    options.use_hosts_file = ResolveHosts::Never;
    options.preserve_intermediates = false;
}

fn text(data: &RData, kind: RecordKind) -> Option<String> {
    match (kind, data) {
        (RecordKind::Cname, RData::CNAME(target)) => {
            Some(target.0.to_ascii().trim_end_matches('.').to_ascii_lowercase())
        }
        (RecordKind::Txt, RData::TXT(text)) => {
            Some(String::from_utf8_lossy(&text.txt_data.concat()).into_owned())
        }
        (RecordKind::Caa, RData::CAA(caa)) => {
            Some(format!("{} {} \"{}\"", caa.flags(), caa.tag, String::from_utf8_lossy(&caa.value)))
        }
        _ => None,
    }
}

fn shown(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(MAX_TEXT).collect()
}
