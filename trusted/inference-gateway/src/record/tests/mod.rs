//! The store through what others see of it.

pub(crate) mod bad;
mod disks;
mod endpoints;
mod journal;
mod kill;
mod lab;
mod layouts;
mod life;
mod log;
mod model;
mod once;
