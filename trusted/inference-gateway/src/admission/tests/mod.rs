//! Who may ask, and how much.

mod consult;
pub(crate) mod fake;
mod keys;
mod told;
