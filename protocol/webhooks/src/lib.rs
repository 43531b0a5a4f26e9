//! Events that webhooks tell of: kinds, payloads, signatures.
//!
//! What is sent is defined here once, for who sends and for who verifies: the body is an [`Envelope`] with the
//! payload of its [`EventKind`], the headers come from [`sign`], and [`verify_public`] and [`verify_standard`] are
//! what a receiver does. No I/O, no clock and no randomness: times and random bytes are given.

mod data;
mod event;
mod kind;
mod schema;
mod secret;
mod signature;

pub use data::{BudgetData, CvmData, Initiator, Kms, OnchainAction, PendingApprovalData};
pub use event::{BODY_VERSION, Envelope, EventId, InvalidEventId, WorkspaceRef};
pub use kind::{EventKind, UnknownEvent};
pub use schema::{sample, sample_data, schema};
pub use secret::{InvalidSecret, MAX_SECRET, MIN_SECRET, Secret};
pub use signature::{Headered, TOLERANCE_S, USER_AGENT, VerifyError, sign, verify_public, verify_standard};
