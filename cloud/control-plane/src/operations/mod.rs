//! Operations: everything that takes longer than a request, done step by step and resumed after a crash.

mod arguments;
mod engine;
mod lifecycle;
mod machine;
mod named;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
mod words;

pub use arguments::Arguments;
pub use engine::{Boundary, Engine, EngineError, EngineOptions, Observer};
pub(crate) use lifecycle::InsertError;
pub use lifecycle::{
    AcceptedUpdate, CancelError, Cancellation, CreateError, CreateRequest, Lifecycle, LifecycleRequest,
    MAX_PORTS, MapPortsError, RequestError, Unfunded, UpdateRequest, WantedPort,
};
pub use machine::{CvmStatus, OperationKind, OperationStatus, Power, RevisionState, Rules, Step};
pub use named::UnknownName;
pub(crate) use named::named_enum;
pub(crate) use steps::kms_urls;
pub use steps::{NodeCallError, Nodes, Patience};
pub(crate) use words::sanitised;
