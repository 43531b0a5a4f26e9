//! What a client lets through, what it sends, and what it takes from servers: through its public interface, against
//! servers on loopback.
#![cfg(test)]

mod addresses;
mod answers;
mod connections;
mod names;
mod resolving;
mod server;
mod spellings;
mod tls;
mod urls;
