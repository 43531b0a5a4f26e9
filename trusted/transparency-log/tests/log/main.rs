//! The log by its public interface: proofs, durability, damage, concurrency.

#![cfg(test)]

mod crash;
mod damage;
mod full_disk;
mod proofs;
mod recovery;
mod support;
mod writing;
