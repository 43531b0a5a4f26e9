//! Processors that do not sleep, those of all of the machine. Whoever wakes one up pays for it, and in a virtual machine that is
//! a call of its host: above all of the processor of upstream and load generator, which is idle for most of the time beside
//! a gateway, and never beside a bare upstream.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};

/// Takes the longest time, in microseconds, in which a processor may wake up, for as long as it is open (Linux's
/// `Documentation/power/pm_qos_interface.rst`).
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Until this is dropped no processor is to sleep, where the kernel has a driver that lets it choose. Only root may ask for it.
pub(crate) fn keep() -> io::Result<File> {
    let mut latency = OpenOptions::new().write(true).open(LATENCY)?;
    latency.write_all(&0_i32.to_ne_bytes())?;
    Ok(latency)
}
