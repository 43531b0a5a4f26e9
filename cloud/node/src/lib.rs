//! Runs CVMs on one host and routes traffic to them.
//!
//! [`Node`] keeps the VMs that the control plane orders and reports on them; [`ingress`] routes the
//! tenants' traffic to them through [`Backends`]. A node holds no secret of a tenant: what it gives to
//! guests it could read, and what guests tell it, it believes for display only.

mod api;
mod backends;
mod clock;
mod config;
mod control_plane;
mod development;
mod enrolment;
mod error;
mod files;
mod flows;
mod gpus;
mod guest_images;
mod host;
pub mod images;
pub mod ingress;
mod node;
mod peers;
mod ports;
mod relay;
mod reporter;
mod vmm;
mod vms;
mod watch;

pub use cloister_node_api::GpuConfidentialMode;

pub use backends::{Backend, Backends, Readiness};
pub use config::{Config, HostProcess, Limits, OnExit};
pub use control_plane::CallError;
pub use enrolment::{EnrolError, enrol};
pub use flows::{Flow, Flows};
pub use gpus::{InvalidPciAddress, PciAddress};
pub use node::{Node, StartError};
pub use peers::{NoPeers, Peers, Tunnel};
pub use ports::{InvalidPortRange, PortRange};
pub use relay::relay;
pub use vmm::PlatformError;
