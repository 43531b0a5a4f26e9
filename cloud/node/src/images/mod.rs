//! Images that tenants pushed to this node, and the registry that serves them to their CVMs.
//!
//! The store is content-addressed: blobs lie once per node, records say which workspace may read which
//! of them. A workspace gets at a blob only through a record of its own, and gets a record only by
//! uploading every byte, so nobody learns what others have.
//!
//! ```text
//! blobs/<sha256>                     contents, written once
//! records/<workspace>/<sha256 of reference>.json
//!                                    one image: its reference, manifests and blobs
//! staging/<n>/                       imports under way; emptied at start
//! lock                               held by the one process that has the store open
//! ```
//!
//! A record is written last and by renaming; a blob without a record is garbage, collected at start. So
//! a crash at any moment leaves either the whole image or nothing of it.

mod archive;
mod assemble;
mod digest;
mod error;
pub(crate) mod feed;
mod limits;
mod manifest;
mod mirror;
mod reference;
mod staging;
mod store;
#[cfg(test)]
mod tests;

pub use digest::{Digest, InvalidDigest};
pub use error::ImageError;
pub use limits::Limits;
pub use mirror::Mirror;
pub use reference::{InvalidReference, Reference};
pub use store::AppImages;
