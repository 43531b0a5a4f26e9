//! Which URLs requests may go to.

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

use crate::address::{canonical, is_public};
use crate::errors::Refused;

/// Longest URL, in bytes.
const MAX_URL: usize = 2048;
/// Longest host name and label, as DNS has them.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;
/// Zones that belong to whoever asks.
const LOCAL_ZONES: &[&str] = &[
    "arpa",
    "corp",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "private",
    "test",
];
/// Ports from 1024 on that stand for other protocols; the list of the Fetch standard.
const OTHER_PROTOCOLS: &[u16] = &[
    1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679,
    6697, 10080,
];

/// What the operator allows beyond public addresses.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    allowed: Vec<IpNet>,
    plain_http: bool,
}

impl Policy {
    pub(crate) fn new(allowed: &[IpNet], plain_http: bool) -> Self {
        let plain_http = plain_http && !allowed.is_empty();
        Self { allowed: allowed.iter().map(IpNet::trunc).collect(), plain_http }
    }

    /// What can be told without asking anybody. A name may still lead to an address that is refused.
    pub(crate) fn check(&self, text: &str) -> Result<Url, Refused> {
        if text.len() > MAX_URL {
            return Err(Refused::TooLong);
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(Refused::Unreadable);
        }
        let url = Url::parse(text).map_err(|_| Refused::Unreadable)?;
        if url.as_str().len() > MAX_URL {
            return Err(Refused::TooLong);
        }
        let plain = match url.scheme() {
            "https" => false,
            "http" if self.plain_http => true,
            _ => return Err(Refused::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() || has_userinfo(text) {
            return Err(Refused::Credentials);
        }
        if url.fragment().is_some() {
            return Err(Refused::Fragment);
        }
        check_port(&url)?;
        match url.host().ok_or(Refused::Unreadable)? {
            Host::Ipv4(address) => self.check_address(address.into(), plain, false)?,
            Host::Ipv6(address) => self.check_address(address.into(), plain, false)?,
            Host::Domain(name) => self.check_name(name)?,
        }
        Ok(url)
    }

    /// Whether a request to an URL that was checked may go to the addresses that its host has: to all, or to none.
    pub(crate) fn check_addresses(&self, url: &Url, addresses: &[IpAddr]) -> Result<(), Refused> {
        if addresses.is_empty() {
            return Err(Refused::Unknown);
        }
        let local = url.domain().is_some_and(is_local);
        addresses.iter().try_for_each(|address| self.check_address(*address, url.scheme() == "http", local))
    }

    /// Plain requests and local names are for what the operator listed, and nothing else.
    fn check_address(&self, address: IpAddr, plain: bool, local: bool) -> Result<(), Refused> {
        let address = canonical(address);
        if self.allowed.iter().any(|network| network.contains(&address)) {
            return Ok(());
        }
        match (is_public(address), plain, local) {
            (false, ..) => Err(Refused::Address),
            (true, true, _) => Err(Refused::Scheme),
            (true, false, true) => Err(Refused::Host),
            (true, false, false) => Ok(()),
        }
    }

    fn check_name(&self, name: &str) -> Result<(), Refused> {
        let readable = is_name(name) && (!is_local(name) || !self.allowed.is_empty());
        if readable { Ok(()) } else { Err(Refused::Host) }
    }
}

/// An empty user name is still one; the parser drops it.
fn has_userinfo(text: &str) -> bool {
    let after = text.split_once(':').map_or("", |(_, rest)| rest).trim_start_matches('/');
    after.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

fn check_port(url: &Url) -> Result<(), Refused> {
    let allowed = match url.port_or_known_default() {
        Some(443) => true,
        Some(80) => url.scheme() == "http",
        Some(port) => port >= 1024 && !OTHER_PROTOCOLS.contains(&port),
        None => false,
    };
    if allowed { Ok(()) } else { Err(Refused::Port) }
}

/// A name that DNS can have: complete labels of letters, digits, hyphens and underscores; one final dot.
fn is_name(name: &str) -> bool {
    let name = without_dot(name);
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=MAX_LABEL).contains(&label.len())
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= MAX_NAME && name.split('.').all(label)
}

/// A name that means something only where it is asked for.
fn is_local(name: &str) -> bool {
    let name = without_dot(name).to_ascii_lowercase();
    name.rsplit_once('.').is_none_or(|(_, zone)| LOCAL_ZONES.contains(&zone))
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}
