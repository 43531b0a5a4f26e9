//! The contracts on a real node: what they allow, whom they obey, and what the lens says of them and of others. One
//! node for all tests; each has contracts of its own.
#![cfg(test)]

mod factory;
mod hostile;
mod model;
mod node;
mod proxies;
mod sequences;
mod wallets;
