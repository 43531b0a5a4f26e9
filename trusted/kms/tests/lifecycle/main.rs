//! A whole KMS on loopback, from an empty directory to its doors, and its deaths.

mod client;
mod deaths;
mod flows;
mod lab;
