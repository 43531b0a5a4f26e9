use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why the log cannot be opened, extended or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// A file cannot be used.
    #[error("{path}: cannot {action}", path = path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: Arc<io::Error>,
    },
    /// Another process, or another part of this one, has the log open.
    #[error("{}: the log is already open elsewhere", .0.display())]
    Busy(PathBuf),
    /// The files are not what was written to them. Nothing is repaired: records that somebody relies on may
    /// be missing.
    #[error("{path}: the log is damaged: {what}; restore it from a copy", path = path.display())]
    Damaged {
        /// The file that does not fit.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// The name of the log cannot stand in a note.
    #[error(
        "{0:?} cannot name a log: it must have 1 to 255 bytes, no space, no plus and no control character"
    )]
    Name(String),
    /// A record is empty, or what is to be appended is longer than [`MAX_RECORD_BYTES`](crate::MAX_RECORD_BYTES).
    #[error("what is to be appended has {0} bytes, not 1 to {max}", max = crate::MAX_RECORD_BYTES)]
    Length(usize),
    /// The records could not be made durable, and are not in the log.
    #[error("the log cannot be extended")]
    NotWritten(#[source] Arc<io::Error>),
    /// An earlier failure left it open what is on the disk. Only opening the log again can tell.
    #[error("the log takes no more records after a failure of its disk; restart to recover it")]
    Broken,
    /// There is no such record, or the log never had that size.
    #[error("the log has no such position: it has {size} records")]
    OutOfRange {
        /// Number of records.
        size: u64,
    },
}

impl LogError {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { action, path, source: Arc::new(error) }
    }

    pub(crate) fn damaged(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.into(), what: what.into() }
    }
}
