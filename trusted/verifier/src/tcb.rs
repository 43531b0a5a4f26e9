//! How well patched a platform is, in its vendor's words.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Status of a platform's trusted computing base, as the vendor's signed list says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TcbStatus {
    /// All known fixes are in.
    UpToDate,
    /// Software in the machine must mitigate something.
    SwHardeningNeeded,
    /// The platform's settings must change.
    ConfigurationNeeded,
    /// Both.
    ConfigurationAndSwHardeningNeeded,
    /// Fixes are missing.
    OutOfDate,
    /// Fixes are missing and settings must change.
    OutOfDateConfigurationNeeded,
    /// The machine was launched on an older module than runs now.
    TdRelaunchAdvised,
    /// The same, and settings must change.
    TdRelaunchAdvisedConfigurationNeeded,
    /// The platform's keys are void. Such evidence does not verify at all.
    Revoked,
}

impl TcbStatus {
    /// All of them, best first.
    pub const ALL: [Self; 9] = [
        Self::UpToDate,
        Self::SwHardeningNeeded,
        Self::ConfigurationNeeded,
        Self::ConfigurationAndSwHardeningNeeded,
        Self::OutOfDate,
        Self::OutOfDateConfigurationNeeded,
        Self::TdRelaunchAdvised,
        Self::TdRelaunchAdvisedConfigurationNeeded,
        Self::Revoked,
    ];

    /// In Intel's spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UpToDate => "UpToDate",
            Self::SwHardeningNeeded => "SWHardeningNeeded",
            Self::ConfigurationNeeded => "ConfigurationNeeded",
            Self::ConfigurationAndSwHardeningNeeded => "ConfigurationAndSWHardeningNeeded",
            Self::OutOfDate => "OutOfDate",
            Self::OutOfDateConfigurationNeeded => "OutOfDateConfigurationNeeded",
            Self::TdRelaunchAdvised => "TDRelaunchAdvised",
            Self::TdRelaunchAdvisedConfigurationNeeded => "TDRelaunchAdvisedConfigurationNeeded",
            Self::Revoked => "Revoked",
        }
    }
}

impl From<dcap_qvl::TcbStatus> for TcbStatus {
    fn from(status: dcap_qvl::TcbStatus) -> Self {
        use dcap_qvl::TcbStatus as Of;
        match status {
            Of::UpToDate => Self::UpToDate,
            Of::SWHardeningNeeded => Self::SwHardeningNeeded,
            Of::ConfigurationNeeded => Self::ConfigurationNeeded,
            Of::ConfigurationAndSWHardeningNeeded => Self::ConfigurationAndSwHardeningNeeded,
            Of::OutOfDate => Self::OutOfDate,
            Of::OutOfDateConfigurationNeeded => Self::OutOfDateConfigurationNeeded,
            Of::TDRelaunchAdvised => Self::TdRelaunchAdvised,
            Of::TDRelaunchAdvisedConfigurationNeeded => Self::TdRelaunchAdvisedConfigurationNeeded,
            Of::Revoked => Self::Revoked,
        }
    }
}

impl fmt::Display for TcbStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no TCB status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a TCB status; they are spelled as Intel does, such as UpToDate or SWHardeningNeeded")]
pub struct UnknownTcbStatus;

impl FromStr for TcbStatus {
    type Err = UnknownTcbStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or(UnknownTcbStatus)
    }
}

impl Serialize for TcbStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TcbStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
