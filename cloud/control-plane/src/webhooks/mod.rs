//! Webhooks: what happened is told to addresses that users name.
//!
//! [`emit()`] writes what happened, and who is to be told, in the transaction of what happened; the [`Dispatcher`]
//! makes the requests. [`Secrets`] seals what they are signed with.

mod dispatcher;
mod emit;
mod post;
mod schedule;
mod secrets;

pub use dispatcher::{Dispatcher, DispatcherOptions, Figures, Limits, Moment, Observer};
pub use emit::{Emission, EmitError, Subject, emit};
pub use post::{Answering, Post};
pub use secrets::{Secrets, SecretsError};
