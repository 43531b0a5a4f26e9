//! What requests use, what that costs, and how much a key may use.

mod limits;
mod usage;

pub use limits::{Decision, Left, Limits, Window};
pub use usage::{Tokens, cost};
