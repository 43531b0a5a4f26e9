//! The virtual machine monitor: the only place that knows QEMU.
//!
//! A VM is one QEMU process that daemonises itself, so that it survives this program. The process holds
//! a lock on its PID file from before it touches anything else until it is gone; that lock, and nothing
//! remembered, answers whether a VM runs and lets at most one process per VM live ([`Process::find`]).

mod command_line;
mod events;
mod forwards;
mod launch;
mod monitor;
mod platform;
mod process;

pub(crate) use command_line::{BootFiles, Channels, Disks, GpuDevice, ImageMirror, Machine, Protection};
pub(crate) use events::Events;
pub(crate) use forwards::{Forward, PortForwards, PublishError};
pub(crate) use launch::{LaunchError, launch};
pub(crate) use monitor::{Monitor, MonitorError};
pub(crate) use platform::Hypervisor;
pub use platform::PlatformError;
pub(crate) use process::Process;
