//! Whole requests, from a client's connection to upstreams that do what they are told.

mod charges;
mod cuts;
mod direct;
mod encrypted;
mod faults;
mod health;
mod leaving;
mod memory;
mod prices;
mod proof;
mod sent;
mod sessions;
mod stopping;
mod streams;
mod support;
mod surfaces;
mod waiting;
mod whole;
