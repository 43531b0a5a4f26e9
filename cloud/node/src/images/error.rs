use std::io;

use cloister_node_api::NodeErrorCode;

use super::InvalidReference;

/// Why an image was not taken, found or removed. The texts are for the person who pushed it.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The reference is no reference.
    #[error(transparent)]
    Reference(#[from] InvalidReference),
    /// The archive does not say under which one name to keep the image.
    #[error("the archive names {0} images: say with a reference which one to import and how it is called")]
    Ambiguous(usize),
    /// The stream ended early, is no tar archive, or is a damaged one.
    #[error("the image archive cannot be read: it is damaged, or the upload broke off")]
    Archive(#[source] io::Error),
    /// A tar archive, but not of an image.
    #[error("not an image archive: {0}; make one with `docker save` or `podman save`")]
    Malformed(&'static str),
    /// A limit was reached.
    #[error("the image archive has more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// The workspace has as many images as it may.
    #[error("the workspace already has {0} images on this node: delete some first")]
    TooManyImages(usize),
    /// The workspace's images would take more space than they may.
    #[error("the images of this workspace would take more than {0} bytes on this node: delete some first")]
    WorkspaceFull(u64),
    /// The workspace has as many imports under way as it may.
    #[error("{0} imports of this workspace are under way: wait for one to end")]
    Busy(usize),
    /// No space left.
    #[error("the node has no disk space left for this image: delete images, or ask the node's operator")]
    DiskFull,
    /// The store's disk fails.
    #[error("the node cannot read or write its image store")]
    Disk(#[source] io::Error),
    /// Another process has the store open.
    #[error("another process uses the image store")]
    InUse,
}

impl ImageError {
    /// How the node's listener reports it.
    #[must_use]
    pub const fn code(&self) -> NodeErrorCode {
        match self {
            Self::Reference(_)
            | Self::Ambiguous(_)
            | Self::Archive(_)
            | Self::Malformed(_)
            | Self::TooLarge { .. } => NodeErrorCode::Invalid,
            Self::TooManyImages(_) | Self::WorkspaceFull(_) | Self::DiskFull => NodeErrorCode::OutOfResources,
            Self::Busy(_) => NodeErrorCode::Conflict,
            Self::Disk(_) | Self::InUse => NodeErrorCode::Internal,
        }
    }

    /// A failure of the store's own files.
    pub(super) fn disk(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Disk(error),
        }
    }
}
