//! The roots of KMSes that are trusted at one server, which may have several KMSes.

use std::collections::{BTreeMap, BTreeSet};

use cloister_app_compose::AppId;
use serde::{Deserialize, Serialize};

use super::root::RootKey;

/// Applications whose root is remembered; beyond that those with the smallest ids are forgotten, for which every root
/// that is trusted at the server counts again.
const MAX_APPS: usize = 4096;

/// Trusted roots, and which of them each application has its keys from. What a server calls its KMSes does not count:
/// an application stays with its KMS, so that one KMS cannot be shown in the place of another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub(crate) struct KnownRoots {
    roots: BTreeSet<RootKey>,
    apps: BTreeMap<String, RootKey>,
}

/// What files hold; those of former versions have one root by itself.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    One(RootKey),
    Several { roots: BTreeSet<RootKey>, apps: BTreeMap<String, RootKey> },
}

impl From<Stored> for KnownRoots {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::One(root) => Self { roots: [root].into(), apps: BTreeMap::new() },
            Stored::Several { roots, apps } => Self { roots, apps },
        }
    }
}

impl KnownRoots {
    /// Those that an application may have its keys from: its own, or any while it was not met.
    pub(crate) fn of(&self, app: AppId) -> Vec<RootKey> {
        match self.apps.get(&app.to_string()) {
            Some(root) => vec![*root],
            None => self.roots.iter().copied().collect(),
        }
    }

    /// Trusts a root, which is that of an application.
    pub(crate) fn trust(&mut self, app: AppId, root: RootKey) {
        self.roots.insert(root);
        self.apps.insert(app.to_string(), root);
        while self.apps.len() > MAX_APPS {
            self.apps.pop_first();
        }
    }

    /// Takes a root for the successor of another one, for all applications that have it.
    pub(crate) fn succeed(&mut self, former: RootKey, root: RootKey) {
        self.roots.remove(&former);
        self.roots.insert(root);
        self.apps.values_mut().filter(|known| **known == former).for_each(|known| *known = root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(byte: u8) -> RootKey {
        let mut key = [byte; 33];
        key[0] = 2;
        RootKey::from(key)
    }

    const fn app(byte: u8) -> AppId {
        AppId::from_bytes([byte; 20])
    }

    #[test]
    fn an_application_stays_with_its_root_beside_others() {
        let mut known = KnownRoots::default();
        assert!(known.of(app(1)).is_empty());
        known.trust(app(1), root(1));
        known.trust(app(2), root(2));
        assert_eq!((known.of(app(1)), known.of(app(2))), (vec![root(1)], vec![root(2)]));
        assert_eq!(known.of(app(3)), vec![root(1), root(2)], "a new one may have either");
        known.trust(app(3), root(1));
        known.succeed(root(1), root(4));
        assert_eq!((known.of(app(1)), known.of(app(3))), (vec![root(4)], vec![root(4)]));
        assert_eq!(
            known.of(app(9)),
            vec![root(2), root(4)],
            "a root with a successor is not trusted any more"
        );
    }

    #[test]
    fn one_root_by_itself_is_read_and_the_number_of_applications_is_bounded() {
        let former: KnownRoots = serde_json::from_value(serde_json::json!(root(7))).unwrap();
        assert_eq!(former.of(app(1)), vec![root(7)]);
        let mut known = former;
        for number in 0..=u16::try_from(MAX_APPS).unwrap() {
            let mut id = [0; 20];
            id[..2].copy_from_slice(&number.to_be_bytes());
            known.trust(AppId::from_bytes(id), root(7));
        }
        assert_eq!(known.apps.len(), MAX_APPS);
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(serde_json::from_str::<KnownRoots>(&text).unwrap(), known);
    }
}
