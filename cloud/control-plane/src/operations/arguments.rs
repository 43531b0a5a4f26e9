//! What an operation was asked to do beside its kind; JSON in the database.

use cloister_node_api::PortMapping;
use serde::{Deserialize, Serialize};

use super::machine::{CvmStatus, Power};
use crate::store::OperationRow;

/// Arguments of an operation. What is absent, also in operations of earlier versions, has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Arguments {
    /// Take the power away instead of asking the guest.
    #[serde(skip_serializing_if = "is_false")]
    pub force: bool,
    /// The CVM is off and stays so.
    #[serde(skip_serializing_if = "is_false")]
    pub offline: bool,
    /// Seconds that the guest gets to shut down, 10 to 1200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_timeout_s: Option<u32>,
    /// The operation fails when the guest has not shut down in time, and takes no power away.
    #[serde(skip_serializing_if = "is_false")]
    pub never_force: bool,
    /// Port mappings that the CVM gets back when the operation fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_ports: Option<Vec<PortMapping>>,
    /// Status of the CVM when the operation was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Arguments {
    /// Those of a stored operation.
    #[must_use]
    pub fn of(operation: &OperationRow) -> Self {
        serde_json::from_str(&operation.arguments).unwrap_or_default()
    }

    /// How the operation finds its CVM.
    #[must_use]
    pub const fn power(&self) -> Power {
        if self.offline { Power::Off } else { Power::On }
    }

    /// Status of the CVM when the operation was accepted, if it was noted.
    #[must_use]
    pub fn was(&self) -> Option<CvmStatus> {
        self.was.as_deref().and_then(|name| name.parse().ok())
    }

    /// As it is stored.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl OperationRow {
    /// The rules that it follows.
    #[must_use]
    pub fn rules(&self) -> &'static super::machine::Rules {
        self.kind.rules_for(Arguments::of(self).power())
    }
}
