use std::fmt;
use std::str::FromStr;

/// What the holder of a certificate is within the installation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A replica of the control plane.
    ControlPlane,
    /// The node of this name.
    Node(String),
}

const CONTROL_PLANE: &str = "cloister://control-plane";
const NODE_PREFIX: &str = "cloister://node/";

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlPlane => f.write_str(CONTROL_PLANE),
            Self::Node(name) => write!(f, "{NODE_PREFIX}{name}"),
        }
    }
}

impl FromStr for Identity {
    type Err = ();

    fn from_str(uri: &str) -> Result<Self, ()> {
        if uri == CONTROL_PLANE {
            return Ok(Self::ControlPlane);
        }
        let name = uri.strip_prefix(NODE_PREFIX).filter(|name| is_node_name(name)).ok_or(())?;
        Ok(Self::Node(name.to_owned()))
    }
}

/// Whether a text can name a node. Node names are DNS labels: they appear in certificates, logs and
/// tables.
#[must_use]
pub fn is_node_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}
