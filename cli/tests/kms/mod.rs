//! `kms` against a KMS in a process of its own, and against directories that lie.

mod directory;
mod lies;
mod real;
mod service;
