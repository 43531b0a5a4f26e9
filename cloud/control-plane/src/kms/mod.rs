//! Key management services: which ones there are, and what the control plane asks of them.

mod config;

pub use config::KmsConfig;
