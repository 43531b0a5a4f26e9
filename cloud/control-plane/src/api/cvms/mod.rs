//! Operations on CVMs, one file each.

pub(crate) mod attestation;
pub(crate) mod batch_status;
pub(crate) mod cancel;
pub(crate) mod compose_file;
pub(crate) mod composition;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod detail;
pub(crate) mod envs;
pub(crate) mod list;
pub(crate) mod operation_status;
pub(crate) mod operations;
pub(crate) mod paginated;
mod power;
pub(crate) mod provision;
pub(crate) mod provision_agentapp;
pub(crate) mod replicas;
pub(crate) mod restart;
pub(crate) mod shutdown;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod stop;
