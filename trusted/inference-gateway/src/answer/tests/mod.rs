//! Whole requests, from a client's connection to upstreams that do what they are told.

mod cuts;
mod faults;
mod leaving;
mod proof;
mod sessions;
mod stopping;
mod streams;
mod support;
mod whole;
