//! Runs CVMs on one host and routes traffic to them.

mod backends;
mod clock;
mod config;
mod error;
mod files;
mod guest_images;
mod host;
mod relay;
mod vmm;
mod vms;

pub use backends::Backends;
pub use config::{Config, Limits, OnExit};
pub use relay::relay;
