//! What an operator says of the provider.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use url::{Host, Url};
use zeroize::Zeroizing;

const MAX_SECRET_BYTES: usize = 1024;
const MAX_TEXT: usize = 100;
const MAX_ISSUER: usize = 512;
/// Most entries of a list.
const MAX_ENTRIES: usize = 100;

/// What becomes of people whom the provider names and who have no account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownPeople {
    /// They are told to ask the operator for one.
    Refuse,
    /// They get an account, and a workspace of its name.
    Create,
}

/// A claim without which nobody logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredClaim {
    /// Its name, or where it begins with `/`, its place in the ID token (JSON pointer, RFC 6901).
    pub claim: String,
    /// The claim is one of these texts, or a list with one of them; at least one.
    pub any_of: Vec<String>,
}

/// The provider, and who may log in by it. Lists have at most 100 entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenidConfig {
    /// Issuer, as it stands in ID tokens: https, or http of `127.0.0.1` or `[::1]`; at most 512 characters.
    pub issuer: String,
    /// What the provider calls this installation, 1 to 100 printable ASCII characters.
    pub client_id: String,
    /// File with the client secret, readable by its owner only: 1 to 1,024 printable ASCII characters, a line break may
    /// follow.
    pub client_secret_file: PathBuf,
    /// What people read on the page, 1 to 100 characters.
    pub name: String,
    /// What is asked for beside `openid`.
    pub scopes: Vec<String>,
    /// The claim that becomes the login name of a new account; all before an `@` counts.
    pub username_claim: String,
    /// Domains of verified mail addresses; empty lets all in.
    pub allowed_email_domains: Vec<String>,
    /// All of these have to be met.
    pub required_claims: Vec<RequiredClaim>,
    /// What becomes of people without an account.
    pub unknown_people: UnknownPeople,
    /// Whether people may log in with a password as well.
    pub password_login: bool,
    /// Values of `amr` that stand for the second factor of an account.
    pub trusted_amr: Vec<String>,
    /// The same of `acr`. They are asked for.
    pub trusted_acr: Vec<String>,
}

/// Why nobody could log in by a provider.
#[derive(Debug, thiserror::Error)]
pub enum InvalidOpenid {
    /// The issuer.
    #[error(
        "{0:?} is no issuer of an OpenID provider: https, or http of 127.0.0.1 or [::1], without user name, query and \
         fragment"
    )]
    Issuer(String),
    /// A text.
    #[error(
        "the member {0} of the OpenID provider is empty, too long, or has characters that do not belong there"
    )]
    Text(&'static str),
    /// A list.
    #[error("the member {0} of the OpenID provider has more than 100 entries")]
    Long(&'static str),
    /// A claim that nobody could have.
    #[error("the claim {0:?} is required without a value that would do; name some in any_of")]
    NoValue(String),
    /// The secret cannot be read.
    #[error("the client secret of the OpenID provider cannot be read from {0}")]
    Secret(PathBuf, #[source] io::Error),
    /// Others can read it.
    #[error("others can read the client secret in {path}; make it yours only: chmod 600 {path}", path = .0.display())]
    Readable(PathBuf),
    /// There is none.
    #[error("{0} holds no client secret: 1 to 1024 printable ASCII characters")]
    NoSecret(PathBuf),
    /// The client for HTTP cannot be made.
    #[error("the OpenID provider could not be asked")]
    Client(#[source] reqwest::Error),
}

/// The client secret.
pub(super) struct Secret(Zeroizing<String>);

impl Secret {
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    fn read(path: &Path) -> Result<Self, InvalidOpenid> {
        let failed = |error| InvalidOpenid::Secret(path.to_owned(), error);
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(InvalidOpenid::Readable(path.to_owned()));
        }
        // Allocated once, so that no copy stays behind.
        let mut text = Zeroizing::new(String::with_capacity(MAX_SECRET_BYTES + 8));
        let most = u64::try_from(MAX_SECRET_BYTES).unwrap_or(u64::MAX).saturating_add(3);
        file.take(most).read_to_string(&mut text).map_err(failed)?;
        let secret = Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned());
        let is_secret = (1..=MAX_SECRET_BYTES).contains(&secret.len())
            && secret.bytes().all(|byte| byte.is_ascii_graphic());
        if is_secret { Ok(Self(secret)) } else { Err(InvalidOpenid::NoSecret(path.to_owned())) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Whether requests may go to an address: over TLS, or to this machine where the issuer is here, too.
pub(super) fn is_safe(url: &Url, plain_on_loopback: bool) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(_)) | None => false,
    };
    let is_plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    is_plain && (url.scheme() == "https" || (plain_on_loopback && url.scheme() == "http" && is_loopback))
}

impl OpenidConfig {
    /// The issuer, if everything else is well, too, and the secret.
    pub(super) fn check(&self) -> Result<(Url, Secret), InvalidOpenid> {
        let issuer = Url::parse(&self.issuer)
            .ok()
            .filter(|url| self.issuer.len() <= MAX_ISSUER && is_safe(url, true) && url.query().is_none());
        let issuer = issuer.ok_or_else(|| InvalidOpenid::Issuer(self.issuer.clone()))?;
        let token =
            |text: &String| text.len() <= MAX_TEXT && text.bytes().all(|byte| byte.is_ascii_graphic());
        let filled = |text: &String| !text.is_empty() && token(text);
        let shown = |text: &String| {
            (1..=MAX_TEXT).contains(&text.chars().count()) && !text.contains(char::is_control)
        };
        let domain = |text: &String| filled(text) && !text.contains('@');
        let texts: [(&'static str, bool, usize); 9] = [
            ("client_id", filled(&self.client_id), 1),
            ("name", shown(&self.name), 1),
            ("username_claim", shown(&self.username_claim), 1),
            ("scopes", self.scopes.iter().all(filled), self.scopes.len()),
            ("trusted_amr", self.trusted_amr.iter().all(filled), self.trusted_amr.len()),
            ("trusted_acr", self.trusted_acr.iter().all(filled), self.trusted_acr.len()),
            (
                "allowed_email_domains",
                self.allowed_email_domains.iter().all(domain),
                self.allowed_email_domains.len(),
            ),
            (
                "required_claims",
                self.required_claims.iter().all(|required| shown(&required.claim)),
                self.required_claims.len(),
            ),
            (
                "any_of",
                self.required_claims.iter().flat_map(|required| &required.any_of).all(shown),
                self.required_claims.iter().map(|required| required.any_of.len()).max().unwrap_or(0),
            ),
        ];
        for (member, is_well, length) in texts {
            if !is_well {
                return Err(InvalidOpenid::Text(member));
            }
            if length > MAX_ENTRIES {
                return Err(InvalidOpenid::Long(member));
            }
        }
        if let Some(empty) = self.required_claims.iter().find(|required| required.any_of.is_empty()) {
            return Err(InvalidOpenid::NoValue(empty.claim.clone()));
        }
        Ok((issuer, Secret::read(&self.client_secret_file)?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;
    use crate::openid::tests::{SECRET, config};

    #[test]
    fn what_an_operator_says_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let good = config("https://id.example.org/realms/a", dir.path());
        assert_eq!(good.check().unwrap().1.reveal(), SECRET);
        for issuer in ["http://127.0.0.1:8080", "http://[::1]/x", "https://id.example.org"] {
            config(issuer, dir.path()).check().unwrap();
        }
        for issuer in [
            "",
            "id.example.org",
            "http://id.example.org",
            "http://localhost",
            "https://id.example.org/?a",
            "https://id.example.org/#a",
            "https://user@id.example.org",
            &format!("https://id.example.org/{}", "a".repeat(512)),
        ] {
            assert!(config(issuer, dir.path()).check().is_err(), "{issuer}");
        }
        let of = |claim: &str, any_of: &[&str]| RequiredClaim {
            claim: claim.into(),
            any_of: any_of.iter().map(ToString::to_string).collect(),
        };
        let many = || vec!["x".to_owned(); MAX_ENTRIES + 1];
        for bad in [
            OpenidConfig { client_id: String::new(), ..good.clone() },
            OpenidConfig { client_id: "a b".into(), ..good.clone() },
            OpenidConfig { name: String::new(), ..good.clone() },
            OpenidConfig { name: "a\n".into(), ..good.clone() },
            OpenidConfig { scopes: vec!["a b".into()], ..good.clone() },
            OpenidConfig { scopes: many(), ..good.clone() },
            OpenidConfig { username_claim: String::new(), ..good.clone() },
            OpenidConfig { allowed_email_domains: vec!["@example.org".into()], ..good.clone() },
            OpenidConfig { allowed_email_domains: vec![String::new()], ..good.clone() },
            OpenidConfig { required_claims: vec![of("groups", &[])], ..good.clone() },
            OpenidConfig { required_claims: vec![of("", &["a"])], ..good.clone() },
            OpenidConfig { required_claims: vec![of("groups", &[""])], ..good.clone() },
            OpenidConfig { trusted_amr: vec![String::new()], ..good.clone() },
            OpenidConfig { trusted_acr: many(), ..good.clone() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_secret_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let config = config("https://id.example.org", dir.path());
        let path = &config.client_secret_file;
        for mode in [0o640, 0o604, 0o620, 0o666] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            let refusal = config.check().unwrap_err();
            assert!(refusal.to_string().contains("chmod 600"), "{refusal}");
        }
        fs::set_permissions(path, Permissions::from_mode(0o400)).unwrap();
        let (_, secret) = config.check().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        for text in ["", "\n", "a b", "\u{e4}", &"x".repeat(MAX_SECRET_BYTES + 1)] {
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
            fs::write(path, text).unwrap();
            assert!(matches!(config.check(), Err(InvalidOpenid::NoSecret(_))), "{text:.10}");
        }
        fs::remove_file(path).unwrap();
        assert!(matches!(config.check(), Err(InvalidOpenid::Secret(..))));
    }
}
