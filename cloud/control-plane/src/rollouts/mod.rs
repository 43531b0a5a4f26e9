//! Rollouts: one change over all replicas of an application, one after the other with health gates; and the
//! same machinery for moving CVMs off a node.
//!
//! A round of a rollout is one transaction: it looks at the members, decides with pure functions, and records
//! the decision together with the operation that carries it out. A process that dies loses nothing and does
//! nothing twice, and any replica of the control plane makes the next round.

mod accept;
mod drain;
mod driver;
mod machine;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use accept::{NewUpdate, RolloutRequestError, Rollouts, UpdateMember};
pub(crate) use drain::obstacle;
pub use driver::{Arguments, Observer, RolloutStep};
pub(crate) use driver::{Driver, fresh_ms};
pub use machine::{MemberState, OnFailure, RolloutEvent, RolloutKind, RolloutState};
