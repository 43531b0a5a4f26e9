//! Why a node refused or failed.

use serde::{Deserialize, Serialize};

use crate::text;

/// Why a node refused or failed; the message is meant for the person whose call it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeError {
    /// What kind of failure, for programs.
    pub code: NodeErrorCode,
    /// What happened and what to do about it; no paths of the host, no secrets.
    #[serde(deserialize_with = "text::plain")]
    pub message: String,
}

/// Kinds of node failures and their HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeErrorCode {
    /// 404: the VM was never prepared here.
    UnknownVm,
    /// 404: the VM runs and has no container of that name.
    UnknownContainer,
    /// 400: the specification or archive is wrong; repeating will not help.
    Invalid,
    /// 404: no image with that hash, or its files do not match the hash.
    BadImage,
    /// 507: not enough disk, memory or slots on the host.
    OutOfResources,
    /// 409: the VM is not in a state for this.
    Conflict,
    /// 502: the guest agent does not answer.
    GuestUnreachable,
    /// 500: anything else; repeating may help.
    Internal,
}

impl NodeErrorCode {
    /// Whether the control plane may try the same call again.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Internal | Self::GuestUnreachable)
    }

    /// HTTP status that carries this code.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::UnknownVm | Self::UnknownContainer | Self::BadImage => 404,
            Self::Invalid => 400,
            Self::OutOfResources => 507,
            Self::Conflict => 409,
            Self::GuestUnreachable => 502,
            Self::Internal => 500,
        }
    }
}
