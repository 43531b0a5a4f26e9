//! Evidence of CVMs and of whatever else somebody wants verified: what the verifier finds, as the
//! installation keeps and shows it.
//!
//! The operator's word about evidence is a convenience. Whoever relies on a CVM verifies by themselves.

mod devices;
mod guest;
mod verdict;

#[cfg(test)]
pub(crate) use devices::look;
pub(crate) use devices::watch;
pub(crate) use guest::{GuestEvidence, Nonce, examine};
pub(crate) use verdict::{Unjudged, Verdict, judge};
