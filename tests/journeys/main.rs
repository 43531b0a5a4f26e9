//! Journeys across the whole system: real processes, a real database, real virtual machines.
//!
//! They need QEMU and a guest image (`make image`); `make test` provides both. Without them they fail and
//! say what is missing: a journey that is skipped shows nothing.

mod changes;
mod clients;
mod confidential_inference;
mod crashes;
mod evidence;
mod faults;
mod governance;
mod hello;
mod inference;
mod keys;
mod lost_node;
mod replicas;
mod troubles;
mod used;
mod webhooks;
