//! Which server to talk to and with which key, on disk.
//!
//! A key is kept together with the server that issued it and is never sent to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::api::BaseUrl;
use crate::commands::deploy::KnownRoots;
use crate::failure::{Exit, Failure};
use crate::files;

/// Name of the file in whatever directory holds it.
pub(crate) const FILE_NAME: &str = "credentials.json";
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;
const MAX_KEY_BYTES: usize = 512;

/// An API key. Its debug form does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ApiKey(String);

impl ApiKey {
    /// Checks what a person typed: visible ASCII only, so that it fits into a header.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let key = text.trim();
        let fits =
            (1..=MAX_KEY_BYTES).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
        let refused = || Failure::usage("the API key must be one line of visible ASCII characters");
        fits.then(|| Self(key.to_owned())).ok_or_else(refused)
    }

    /// The key itself, for the one place that sends it and those that a person asked to show it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ApiKey {
    type Error = Failure;

    fn try_from(text: String) -> Result<Self, Failure> {
        Self::parse(&text)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Keys by server, and the server to use when none is named.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Credentials {
    current: Option<BaseUrl>,
    servers: BTreeMap<BaseUrl, ApiKey>,
    /// Those of them whose key was made for this file: logging out ends it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    own: BTreeSet<BaseUrl>,
    /// Roots of KMSes that are trusted, by server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    kms_roots: BTreeMap<BaseUrl, KnownRoots>,
}

impl Credentials {
    /// Reads the file; a missing one is empty.
    pub(crate) fn load(path: &Path) -> Result<Self, Failure> {
        let Some(text) = files::read_own(path, MAX_FILE_BYTES)? else { return Ok(Self::default()) };
        serde_json::from_str(&text).map_err(|error| {
            Failure::new(Exit::Failed, format!("{} is damaged", path.display()))
                .caused_by(error)
                .hint("remove the file and run `cloister login` again")
        })
    }

    /// Adds a key and makes its server the current one.
    pub(crate) fn remember(&mut self, server: BaseUrl, key: ApiKey) {
        self.own.remove(&server);
        self.servers.insert(server.clone(), key);
        self.current = Some(server);
    }

    /// The same for a key that nobody else has.
    pub(crate) fn remember_own(&mut self, server: BaseUrl, key: ApiKey) {
        self.remember(server.clone(), key);
        self.own.insert(server);
    }

    /// The key that `server` issued for this file and nobody else.
    pub(crate) fn own_key(&self, server: &BaseUrl) -> Option<&ApiKey> {
        self.key(server).filter(|_| self.own.contains(server))
    }

    /// Removes the key of a server.
    pub(crate) fn forget(&mut self, server: &BaseUrl) {
        self.servers.remove(server);
        self.own.remove(server);
        self.current = self.current.take().filter(|current| current != server);
    }

    /// The server to use when none is named.
    pub(crate) fn current(&self) -> Option<&BaseUrl> {
        self.current.as_ref()
    }

    /// The key that `server` issued.
    pub(crate) fn key(&self, server: &BaseUrl) -> Option<&ApiKey> {
        self.servers.get(server)
    }

    /// The roots that are trusted at `server`.
    pub(crate) fn kms_roots(&self, server: &BaseUrl) -> KnownRoots {
        self.kms_roots.get(server).cloned().unwrap_or_default()
    }

    /// Trusts these from now on.
    pub(crate) fn remember_kms_roots(&mut self, server: BaseUrl, roots: KnownRoots) {
        self.kms_roots.insert(server, roots);
    }

    /// Replaces the file as a whole, readable by its owner only.
    pub(crate) fn store(&self, path: &Path) -> Result<(), Failure> {
        let write = || -> io::Result<()> {
            let directory = path.parent().unwrap_or(Path::new("."));
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.as_file().set_permissions(PermissionsExt::from_mode(0o600))?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|error| Failure::local(format!("cannot write {}", path.display()), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> BaseUrl {
        url.parse().unwrap()
    }

    #[test]
    fn keeps_one_key_per_server_in_a_private_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/credentials.json");
        let mut credentials = Credentials::default();
        credentials.remember(server("https://one.example"), ApiKey::parse("phak_one").unwrap());
        credentials.remember(server("https://two.example"), ApiKey::parse("phak_two").unwrap());
        credentials.store(&path).unwrap();

        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let loaded = Credentials::load(&path).unwrap();
        assert_eq!(loaded.current(), Some(&server("https://two.example/api/v1")));
        assert_eq!(loaded.key(&server("https://one.example")).unwrap().reveal(), "phak_one");
        assert_eq!(loaded.key(&server("https://three.example")), None);
        assert!(!format!("{loaded:?}").contains("phak_"));
    }

    #[test]
    fn knows_which_keys_are_its_own_until_it_forgets_them() {
        let (one, two) = (server("https://one.example"), server("https://two.example"));
        let key = || ApiKey::parse("phak_one").unwrap();
        let mut credentials = Credentials::default();
        credentials.remember_own(one.clone(), key());
        credentials.remember(two.clone(), key());
        assert_eq!((credentials.own_key(&one), credentials.own_key(&two)), (Some(&key()), None));
        credentials.forget(&one);
        assert_eq!((credentials.key(&one), credentials.current()), (None, Some(&two)));
        credentials.remember_own(two.clone(), key());
        credentials.remember(two.clone(), key());
        assert_eq!(credentials.own_key(&two), None, "this one was typed in");
        credentials.forget(&two);
        assert_eq!((credentials.key(&two), credentials.current()), (None, None));
    }

    #[test]
    fn refuses_keys_that_no_header_can_carry() {
        for text in ["", " ", "two words", "line\nbreak", "ключ"] {
            assert!(ApiKey::parse(text).is_err(), "{text:?}");
        }
    }
}
