//! Failures of VM operations, and what of them the control plane is told.

use std::error::Error;
use std::io;

use cloister_development_tee::TeeError;
use cloister_guest_channel::config_disk::ConfigDiskError;
use cloister_node_api::{NodeError, NodeErrorCode};

use crate::vmm::{LaunchError, MonitorError};

/// Why an operation on a VM failed. The text is for the person whose call it was: no paths of the host.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VmError {
    #[error("this node has no such CVM")]
    Unknown,
    #[error("the CVM has no container of that name")]
    UnknownContainer,
    #[error("{0}")]
    Invalid(String),
    #[error(
        "this node has no intact guest image with hash {0}: choose another image, or ask the operator to install it"
    )]
    BadImage(cloister_app_compose::OsImageHash),
    #[error("the guest image brings no firmware that could be measured: choose another image")]
    NoFirmware,
    #[error("{0}")]
    OutOfResources(String),
    #[error("{0}")]
    Conflict(&'static str),
    #[error("the CVM does not answer: {0}")]
    GuestUnreachable(&'static str),
    #[error("cannot {what} on the node")]
    Storage {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the configuration disk cannot be made: {0}")]
    ConfigDisk(ConfigDiskError),
    #[error("the registers of the CVM cannot be kept on the node")]
    Registers(#[from] TeeError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("the CVM's process does not answer the node")]
    Monitor(#[from] MonitorError),
    #[error("the CVM's process does not end")]
    Undead,
    #[error("the node is stopping")]
    Stopping,
}

impl VmError {
    /// Names the failed action of an I/O error.
    pub(crate) fn storage(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Storage { what, source }
    }

    fn code(&self) -> NodeErrorCode {
        match self {
            Self::Unknown => NodeErrorCode::UnknownVm,
            Self::UnknownContainer => NodeErrorCode::UnknownContainer,
            Self::Invalid(_) | Self::ConfigDisk(ConfigDiskError::TooLarge { .. }) => NodeErrorCode::Invalid,
            Self::BadImage(_) | Self::NoFirmware => NodeErrorCode::BadImage,
            Self::OutOfResources(_) => NodeErrorCode::OutOfResources,
            Self::Conflict(_) => NodeErrorCode::Conflict,
            Self::GuestUnreachable(_) => NodeErrorCode::GuestUnreachable,
            _ if is_out_of_space(self) => NodeErrorCode::OutOfResources,
            Self::Storage { .. }
            | Self::ConfigDisk(_)
            | Self::Registers(_)
            | Self::Launch(_)
            | Self::Monitor(_)
            | Self::Undead
            | Self::Stopping => NodeErrorCode::Internal,
        }
    }
}

/// Whether a full disk is the cause.
fn is_out_of_space(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        cause = error.source();
    }
    false
}

impl From<VmError> for NodeError {
    fn from(error: VmError) -> Self {
        let code = error.code();
        let message = match code {
            NodeErrorCode::OutOfResources if is_out_of_space(&error) => {
                "the node's disk is full: choose another node, or ask the operator to free space".to_owned()
            }
            _ => error.to_string(),
        };
        if code == NodeErrorCode::Internal {
            tracing::error!(error = &error as &dyn Error, "a VM operation failed");
        }
        Self { code, message }
    }
}
