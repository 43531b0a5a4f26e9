//! The store through what others see of it.

mod disks;
mod kill;
mod lab;
mod life;
mod log;
mod model;
