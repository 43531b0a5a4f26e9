//! Operations: everything that takes longer than a request, done step by step and resumed after a crash.

mod engine;
mod lifecycle;
mod machine;
mod steps;
#[cfg(test)]
pub(crate) mod tests;

pub use engine::{Boundary, Engine, EngineError, EngineOptions, Observer};
pub use lifecycle::{
    CancelError, Cancellation, CreateError, CreateRequest, Lifecycle, LifecycleRequest, NewEnvs, RequestError,
};
pub use machine::{CvmStatus, OperationKind, OperationStatus, Rules, Step, UnknownName};
pub use steps::{NodeCallError, Nodes};
