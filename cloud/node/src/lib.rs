//! Runs CVMs on one host and routes traffic to them.

mod backends;

pub use backends::Backends;
