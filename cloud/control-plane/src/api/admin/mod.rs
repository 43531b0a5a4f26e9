//! What only administrators of the installation do.

pub(crate) mod nodes;
pub(crate) mod os_images;
