//! The walk over minted evidence, honest and forged.

mod attacks;
mod bundles;
mod certificates;
mod machine;
mod samples;
mod walk;
