//! The walk over minted evidence, honest and forged.

mod attacks;
mod bundles;
mod machine;
mod samples;
mod walk;
