//! The types against the published tables and vectors, against the compiled contracts, and against garbage.
#![cfg(test)]

mod artifacts;
mod encoding;
mod events;
mod lens;
mod reverts;
mod tables;
