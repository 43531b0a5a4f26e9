//! What a node and the guest agent on it tell each other.
//!
//! Three surfaces, all outside the guest's trust: the *configuration disk*, a read-only tar archive on a
//! virtio block device that the guest reads once at boot ([`config_disk`]); the *status channel*, JSON
//! lines over a virtio serial port ([`status`]); and where no hardware protects the guest, the
//! development TEE's channel ([`tee`]). Everything that crosses them is
//! checked by the guest agent before use; nothing on them is secret from the node.

pub mod config_disk;
mod node_token;
pub mod registries;
pub mod status;
pub mod tee;

pub use node_token::{InvalidNodeToken, NODE_TOKEN_HEADER, NodeToken};

/// Serial of the virtio block device that carries the read-only root file system.
pub const ROOT_DISK_SERIAL: &str = "cloister-root";
/// Serial of the virtio block device that carries the configuration archive.
pub const CONFIG_DISK_SERIAL: &str = "cloister-config";
/// Serial of the virtio block device that keeps the CVM's data over restarts.
pub const DATA_DISK_SERIAL: &str = "cloister-data";
/// Name of the virtio serial port of the status channel.
pub const STATUS_PORT: &str = "cloister.status";

/// The guest's address in QEMU's user network.
pub const GUEST_ADDRESS: &str = "10.0.2.15";
/// Prefix length of the guest's network.
pub const GUEST_PREFIX_LENGTH: u8 = 24;
/// The guest's default gateway.
pub const GATEWAY_ADDRESS: &str = "10.0.2.2";
/// The guest's resolver.
pub const RESOLVER_ADDRESS: &str = "10.0.2.3";
/// Address of the node's image mirror as seen by the guest (plain HTTP, OCI distribution API); what the
/// guest tells its container engine about it is in [`registries`].
pub const IMAGE_MIRROR_ADDRESS: &str = "10.0.2.100:5000";
/// TCP port of the guest agent's external listener: `/logs/<container>`, `/containers`, `/health`, `/metrics`,
/// and for the node alone `/stats`.
pub const AGENT_PORT: u16 = 8090;
