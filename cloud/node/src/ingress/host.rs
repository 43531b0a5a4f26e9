//! Host names of the ingress: `<app_id or instance_id>[-<port>][s|g].<domain>`.

use std::fmt;
use std::str::FromStr;

/// Hex digits of an application or instance identity.
const ID_DIGITS: usize = 40;
/// Longest host name in the domain name system.
const MAX_HOST_BYTES: usize = 253;

/// Domain below which every name leads to an app; lower case, no dots at the ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(String);

/// A text that cannot be the domain of an ingress.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a domain name: use letters, digits, dashes and dots, as in apps.localhost")]
pub struct InvalidDomain;

impl FromStr for Domain {
    type Err = InvalidDomain;

    fn from_str(text: &str) -> Result<Self, InvalidDomain> {
        let domain = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        // Room for the longest label and its dot in front.
        let fits = domain.len() + ID_DIGITS + "-65535s.".len() <= MAX_HOST_BYTES;
        (fits && domain.split('.').all(is_label)).then_some(Self(domain)).ok_or(InvalidDomain)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// How traffic for a name reaches the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// HTTP/1.1 to the guest; TLS, if any, ends here.
    Http1,
    /// HTTP/2 without TLS to the guest (`g`); TLS, if any, ends here.
    Http2,
    /// TLS ends in the guest (`s`).
    Passthrough,
}

impl Mode {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Http1 => "",
            Self::Http2 => "g",
            Self::Passthrough => "s",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http1 | Self::Http2 => 80,
            Self::Passthrough => 443,
        }
    }
}

/// Where a host name leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Hex form of an application or instance, in lower case.
    pub id: String,
    /// TCP port of the guest, never 0.
    pub port: u16,
    /// How to get there.
    pub mode: Mode,
}

/// Why a host name leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It is not a name directly below the domain.
    #[error("the name is not one of this ingress")]
    Foreign,
    /// It is below the domain, but not of the form of the names there.
    #[error("names have the form <app_id>[-<port>][s|g].<domain>")]
    Malformed,
}

impl Domain {
    /// Reads a `Host` header or server name: any case, with or without a trailing dot and the ingress'
    /// own port.
    pub fn route(&self, host: &str) -> Result<Route, HostError> {
        let name = without_port(host).ok_or(HostError::Foreign)?;
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let label = name
            .strip_suffix(&self.0)
            .and_then(|rest| rest.strip_suffix('.'))
            .filter(|_| name.len() <= MAX_HOST_BYTES)
            .ok_or(HostError::Foreign)?;
        parse_label(label).ok_or(HostError::Malformed)
    }

    /// The one spelling of a route's name.
    #[must_use]
    pub fn name_of(&self, route: &Route) -> String {
        let Route { id, port, mode } = route;
        match *port {
            port if port == mode.default_port() => format!("{id}{}.{self}", mode.suffix()),
            port => format!("{id}-{port}{}.{self}", mode.suffix()),
        }
    }
}

/// `None` for addresses in brackets and for ports that are none.
fn without_port(host: &str) -> Option<&str> {
    match host.split_once(':') {
        None => Some(host),
        Some((name, port)) => (port.is_empty() || port.parse::<u16>().is_ok()).then_some(name),
    }
}

fn parse_label(label: &str) -> Option<Route> {
    let (id, rest) = label.split_at_checked(ID_DIGITS)?;
    if !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let (port, mode) = match rest.as_bytes() {
        [.., b's'] => (rest.strip_suffix('s')?, Mode::Passthrough),
        [.., b'g'] => (rest.strip_suffix('g')?, Mode::Http2),
        _ => (rest, Mode::Http1),
    };
    let port = if port.is_empty() { mode.default_port() } else { parse_port(port.strip_prefix('-')?)? };
    Some(Route { id: id.to_owned(), port, mode })
}

/// One spelling per port: no sign, no leading zero.
fn parse_port(digits: &str) -> Option<u16> {
    digits.parse().ok().filter(|port: &u16| *port != 0 && port.to_string() == digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";

    fn domain() -> Domain {
        "apps.localhost".parse().unwrap()
    }

    #[test]
    fn every_form_of_a_name() {
        let table: &[(&str, u16, Mode)] = &[
            ("{id}.apps.localhost", 80, Mode::Http1),
            ("{id}-8080.apps.localhost", 8080, Mode::Http1),
            ("{id}s.apps.localhost", 443, Mode::Passthrough),
            ("{id}-8443s.apps.localhost", 8443, Mode::Passthrough),
            ("{id}g.apps.localhost", 80, Mode::Http2),
            ("{id}-50051g.apps.localhost:443", 50051, Mode::Http2),
            ("{ID}.APPS.localhost.:8080", 80, Mode::Http1),
            ("{id}.apps.localhost:", 80, Mode::Http1),
        ];
        for (pattern, port, mode) in table {
            let host = pattern.replace("{id}", ID).replace("{ID}", &ID.to_uppercase());
            let route = Route { id: ID.to_owned(), port: *port, mode: *mode };
            assert_eq!(domain().route(&host), Ok(route), "{host}");
        }
    }

    #[test]
    fn names_that_lead_nowhere() {
        use HostError::{Foreign, Malformed};
        let table: &[(&str, HostError)] = &[
            ("", Foreign),
            ("apps.localhost", Foreign),
            ("localhost:8080", Foreign),
            ("127.0.0.1", Foreign),
            ("[::1]:8080", Foreign),
            ("{id}.other.example", Foreign),
            ("{id}xapps.localhost", Foreign),
            ("{id}.apps.localhost:http", Foreign),
            ("{id}.apps.localhost:1:2", Foreign),
            ("{id}.apps.localhost..", Foreign),
            (".apps.localhost", Malformed),
            ("www.{id}.apps.localhost", Malformed),
            ("{id}gs.apps.localhost", Malformed),
            ("{id}sg.apps.localhost", Malformed),
            ("{id}-.apps.localhost", Malformed),
            ("{id}-s.apps.localhost", Malformed),
            ("{id}-0.apps.localhost", Malformed),
            ("{id}-080.apps.localhost", Malformed),
            ("{id}-+80.apps.localhost", Malformed),
            ("{id}-65536.apps.localhost", Malformed),
            ("{id}8.apps.localhost", Malformed),
            ("user@{id}.apps.localhost", Malformed),
            ("0x{id}.apps.localhost", Malformed),
            ("abc.apps.localhost", Malformed),
        ];
        for (pattern, error) in table {
            let host = pattern.replace("{id}", ID);
            assert_eq!(domain().route(&host), Err(*error), "{host:?}");
        }
    }

    #[test]
    fn domains() {
        assert_eq!("Apps.Example.COM.".parse::<Domain>().unwrap().to_string(), "apps.example.com");
        for bad in ["", ".", "a..b", "-a.b", "a_b", "a b", "ä.de", &"a.".repeat(120)] {
            assert_eq!(bad.parse::<Domain>(), Err(InvalidDomain), "{bad:?}");
        }
    }

    fn any_mode() -> impl Strategy<Value = Mode> {
        prop_oneof![Just(Mode::Http1), Just(Mode::Http2), Just(Mode::Passthrough)]
    }

    proptest! {
        #[test]
        fn a_route_survives_its_name(id in "[0-9a-f]{40}", port in 1..=u16::MAX, mode in any_mode()) {
            let route = Route { id, port, mode };
            prop_assert_eq!(domain().route(&domain().name_of(&route)), Ok(route));
        }

        #[test]
        fn any_text_is_answered(host in ".{0,300}") {
            let _ = domain().route(&host);
        }

        #[test]
        fn near_misses_are_answered(host in "[0-9a-f]{38,42}(-[0-9]{0,6})?[sg]{0,2}\\.(apps\\.localhost|x)[.:]?[0-9]{0,6}") {
            if let Ok(route) = domain().route(&host) {
                prop_assert_eq!(domain().route(&domain().name_of(&route)), Ok(route));
            }
        }
    }
}
