use std::collections::BTreeSet;
use std::fmt;

use crate::{Environment, danger};

/// What an application gets of an environment, and what it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Variables for the application.
    pub kept: Environment,
    /// Those that it does not get, for a warning.
    pub skipped: Vec<Skipped>,
}

/// A variable that an application does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: SkipReason,
}

/// Why an application does not get a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// The measured document does not allow the name.
    NotAllowed,
    /// Nobody gets it: what it could do.
    Dangerous(&'static str),
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed => f.write_str("it is not in allowed_envs of the compose document"),
            Self::Dangerous(reason) => write!(f, "no environment may set it: it {reason}"),
        }
    }
}

impl Environment {
    /// Keeps the names that the measured document allows and that are not dangerous. A dangerous name stays
    /// out although the document allows it: who measured the document did not see the value.
    pub fn select<'a>(self, allowed: impl IntoIterator<Item = &'a str>) -> Selection {
        let allowed: BTreeSet<&str> = allowed.into_iter().collect();
        let mut kept = Vec::new();
        let mut skipped = Vec::new();
        for (name, value) in self.into_variables() {
            match (danger(&name), allowed.contains(name.as_str())) {
                (Some(reason), _) => skipped.push(Skipped { name, why: SkipReason::Dangerous(reason) }),
                (None, false) => skipped.push(Skipped { name, why: SkipReason::NotAllowed }),
                (None, true) => kept.push((name, value)),
            }
        }
        Selection { kept: Self::from_checked(kept), skipped }
    }
}
