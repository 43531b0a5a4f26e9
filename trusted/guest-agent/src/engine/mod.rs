//! The container engine: podman, spoken to over its Unix socket.

mod client;
mod events;
mod frames;
mod health;
mod project;
mod registries;
mod service;

pub(crate) use client::{Body, Engine, EngineError, patiently};
pub(crate) use frames::{Channel, Frame, Frames};
pub(crate) use health::Changes;
pub(crate) use project::{Checked, ServiceContainer};
pub(crate) use service::{StartError, start};

/// The engine's socket, where Docker's would be: clients and tenants' mounts find it without being told.
pub(crate) const SOCKET: &str = "/run/docker.sock";
