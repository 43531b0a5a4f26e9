//! The reader against a real node, and against endpoints in front of it that lie or fail.
#![cfg(test)]

mod hostile;
mod limits;
mod proxy;
mod real;
mod sending;
mod support;
