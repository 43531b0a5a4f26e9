//! What only administrators of the installation do.

pub(crate) mod drain;
pub(crate) mod nodes;
pub(crate) mod os_images;
pub(crate) mod users;
