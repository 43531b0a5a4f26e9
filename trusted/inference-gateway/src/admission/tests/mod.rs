//! Who may ask, and how much.

mod consult;
mod fake;
mod keys;
