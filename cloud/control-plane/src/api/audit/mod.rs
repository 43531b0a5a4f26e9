//! The audit log: of a workspace for whoever has a key of scope `admin` of it, of the installation for administrators.

pub(super) mod export;
pub(super) mod head;
pub(super) mod list;

/// Exports that a chain's owner may have under way at a time.
pub(super) const MAX_EXPORTS: usize = 2;
