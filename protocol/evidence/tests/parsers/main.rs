//! The parsers through their public interface: samples made here, published samples where they are to be
//! had, every byte flipped, every truncation, and anything at all.
#![cfg(test)]

mod app_info;
mod boot_log;
mod event_log;
mod identity;
mod launch;
mod nitro;
mod quote;
mod samples;
mod seeds;
mod snp;
mod support;
mod versioned_attestation;
