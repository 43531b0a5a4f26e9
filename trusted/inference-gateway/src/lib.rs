//! OpenAI-compatible gateway whose answers carry proof.
//!
//! It runs in a confidential VM: prompts are read here and nowhere else, and never reach a log or a disk.

pub mod accounting;
pub mod admission;
pub mod answer;
pub mod body;
mod busy_poll;
pub mod config;
pub mod door;
pub mod e2ee;
pub mod error;
pub mod format;
pub mod gateway;
mod gathering;
mod ids;
mod in_place;
#[cfg(test)]
mod lab;
pub mod models;
pub mod observe;
pub mod operator;
pub mod proof;
pub mod record;
pub mod routing;
pub mod run;
pub mod stream;
pub mod surface;
mod unattended;
pub mod upstream;
pub mod verification;
