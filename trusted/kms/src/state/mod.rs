//! What a KMS must not forget, and how it changes.
//!
//! Everything stands in one sealed file (`content`), which is replaced as a whole (`file`) under a key of
//! the machine (`sealing`). A request takes a [`Snapshot`]: it takes no lock and sees no half of a change.
//! Changes go one after the other through the `writer`, which brings each into the log exactly once.

mod apps;
mod boundaries;
mod changes;
mod content;
mod file;
mod holders;
mod keys;
mod opening;
mod ownership;
mod recovery;
mod roots;
mod sealing;
mod snapshot;
#[cfg(test)]
mod tests;
mod writer;

pub use boundaries::Boundaries;
pub(crate) use content::State;
pub(crate) use holders::Holder;
pub(crate) use keys::Keys;
pub use opening::StateError;
pub(crate) use opening::{NewState, Opened, Store};
pub use recovery::RecoveryError;
pub use roots::{InvalidRoots, MakeRootError};
pub(crate) use roots::{LiveRoot, check as check_roots, make as make_root};
pub use sealing::{SealError, UnsealError};
pub(crate) use snapshot::Snapshot;
pub use writer::WriteError;
pub(crate) use writer::chain;
