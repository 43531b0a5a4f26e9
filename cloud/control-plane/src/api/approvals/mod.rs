//! Changes that those who decide for an application have to allow: asking them, preparing what waits for them,
//! and carrying it out.
//!
//! A change that needs approval and has it is carried out like any other. One that lacks it is kept as a whole
//! and answered with 465, which says what has to be registered where, and a commit token. Whoever has the token
//! commits, with or without an account: 466 when the token stands for nothing any more, then 467 when the
//! transaction did not allow it, then 468 when those who decide do not allow it (any more).

pub(super) mod commit_replica;
pub(super) mod commit_update;
mod find;
mod info;
mod matter;
mod owners;
mod replica;
mod required;
mod rollout;
mod update;

pub(crate) use commit_replica::commit_instance;
pub(crate) use info::wanted;
pub(crate) use matter::{Matter, cannot_tell};
pub(crate) use owners::{Signers, approval_json};
pub(crate) use replica::add;
pub(crate) use rollout::check_members;
pub(crate) use update::{commit_waiting, pass};

/// Commits that may be made with one token at a time: the rest would ask the chain for nothing.
pub(super) const MAX_COMMITS: usize = 1;
/// Looks at one prepared change at a time: each asks the chain.
pub(super) const MAX_LOOKS: usize = 2;
/// Largest body of a commit.
pub(super) const MAX_BODY_BYTES: usize = 4 * 1024;
