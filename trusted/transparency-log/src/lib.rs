//! An append-only Merkle log on disk with signed checkpoints, and its verification.
//!
//! Hashes and proofs are those of RFC 6962; a checkpoint is a C2SP `tlog-checkpoint` in a C2SP `signed-note`.
//! What a record says is not this crate's business.
//!
//! [`Log::append`] answers when the record is on the disk. A thread of its own writes what has been waiting
//! in one piece and makes it durable with one `fdatasync`, so that many callers share the wait. After a
//! crash, everything that was answered is there; what was half-written is cut off; a log that does not fit
//! together in any other way is not opened.
//!
//! Memory does not grow with the log: it holds the right edge of the tree, at most 64 hashes, and what is
//! just being written.
//!
//! [`verify`] is for readers of the log and does no input or output.

mod disk;
mod error;
mod key;
mod log;
mod recovery;
mod tree;
pub mod verify;
mod writer;

pub use error::LogError;
pub use key::{SigningKey, is_valid_name};
pub use log::Log;
pub use tree::{Hash, Leaf, Tree, leaf_hash};

/// Longest record, in bytes.
pub const MAX_RECORD_BYTES: usize = 1 << 20;
