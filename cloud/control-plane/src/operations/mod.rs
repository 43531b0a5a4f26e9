//! Operations: everything that takes longer than a request, done step by step and resumed after a crash.

mod arguments;
mod engine;
mod lifecycle;
mod machine;
mod steps;
#[cfg(test)]
pub(crate) mod tests;

pub use arguments::Arguments;
pub use engine::{Boundary, Engine, EngineError, EngineOptions, Observer};
pub use lifecycle::{
    AcceptedUpdate, CancelError, Cancellation, CreateError, CreateRequest, Lifecycle, LifecycleRequest,
    RequestError, UpdateRequest,
};
pub(crate) use lifecycle::InsertError;
pub use machine::{
    CvmStatus, OperationKind, OperationStatus, Power, RevisionState, Rules, Step, UnknownName,
};
pub use steps::{NodeCallError, Nodes};
