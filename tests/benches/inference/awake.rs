//! Processors that do not sleep. Whoever wakes one up pays for it, and in a virtual machine that is a call of its host: of the
//! upstream's and the load generator's processor, which is idle for most of the time beside a gateway, and never beside
//! a bare upstream.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};

/// Takes the longest time, in microseconds, in which a processor may wake up, for as long as it is open (Linux's
/// `Documentation/power/pm_qos_interface.rst`).
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Until this is dropped no processor sleeps. Only root may ask for it.
pub(crate) fn keep() -> io::Result<File> {
    let mut latency = OpenOptions::new().write(true).open(LATENCY)?;
    latency.write_all(&0_i32.to_ne_bytes())?;
    Ok(latency)
}
