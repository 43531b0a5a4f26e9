//! What can be had.

pub(crate) mod attestation_nodes;
pub(crate) mod instance_types;
pub(crate) mod os_images;
pub(crate) mod teepods;
