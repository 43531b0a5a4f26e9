//! What an API key may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What an API key may do, whatever its user may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Ask the inference gateway, and nothing else.
    Inference,
    /// Look at everything that the workspace has.
    Read,
    /// Change CVMs, applications, images and SSH keys, and what `inference` and `read` allow.
    Deploy,
    /// Manage API keys, secrets, owners and money, read the audit log, and administer the installation where the
    /// user is an administrator; and everything else.
    #[default]
    Admin,
}

impl KeyScope {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::Inference, Self::Read, Self::Deploy, Self::Admin];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Read => "read",
            Self::Deploy => "deploy",
            Self::Admin => "admin",
        }
    }

    /// Whether a key of this scope may do what needs the other. Looking at things and spending money on inference do
    /// not include each other.
    #[must_use]
    pub const fn includes(self, needed: Self) -> bool {
        match self {
            Self::Inference => matches!(needed, Self::Inference),
            Self::Read => matches!(needed, Self::Read),
            Self::Deploy => !matches!(needed, Self::Admin),
            Self::Admin => true,
        }
    }
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Input should be 'inference', 'read', 'deploy' or 'admin'")]
pub struct InvalidScope;

impl FromStr for KeyScope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(InvalidScope)
    }
}

impl TryFrom<String> for KeyScope {
    type Error = InvalidScope;

    fn try_from(text: String) -> Result<Self, InvalidScope> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_scope_includes() {
        use KeyScope::{Admin, Deploy, Inference, Read};
        for (scope, includes) in [
            (Inference, vec![Inference]),
            (Read, vec![Read]),
            (Deploy, vec![Inference, Read, Deploy]),
            (Admin, vec![Inference, Read, Deploy, Admin]),
        ] {
            let included: Vec<_> = KeyScope::ALL.into_iter().filter(|other| scope.includes(*other)).collect();
            assert_eq!(included, includes, "{scope}");
        }
    }

    #[test]
    fn scopes_have_names() {
        for scope in KeyScope::ALL {
            assert_eq!(scope.to_string().parse(), Ok(scope));
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.as_str());
        }
        for text in ["", "Admin", "write", "read "] {
            assert_eq!(text.parse::<KeyScope>(), Err(InvalidScope));
        }
    }
}
