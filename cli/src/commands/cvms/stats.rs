//! `cloister cvms stats`: what a guest tells about its machine.

use serde::Deserialize;

use crate::api::read;
use crate::args::CvmName;
use crate::commands::Outcome;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Arguments of `cvms stats`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
}

#[derive(Deserialize)]
struct Stats {
    error: Option<String>,
    sysinfo: Option<Machine>,
}

/// Sizes in bytes, uptime in seconds, load averages times 100.
#[derive(Deserialize)]
struct Machine {
    os_name: String,
    os_version: String,
    kernel_version: String,
    cpu_model: String,
    num_cpus: u32,
    total_memory: u64,
    available_memory: u64,
    uptime: u64,
    loadavg_one: u32,
    loadavg_five: u32,
    loadavg_fifteen: u32,
    disks: Vec<Disk>,
}

#[derive(Deserialize)]
struct Disk {
    mount_point: String,
    total_size: u64,
    free_size: u64,
}

/// Prints the figures of a CVM that is up.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (output, cvm) = (&session.output, args.name.cvm.as_str());
    let document = session.client()?.get(&["cvms", cvm, "stats"], &[]).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let stats: Stats = read(&document)?;
    let Some(machine) = stats.sysinfo else {
        let reason = stats.error.unwrap_or_else(|| "its guest does not answer".to_owned());
        return Err(Failure::new(Exit::Failed, format!("{cvm} tells nothing: {reason}"))
            .hint(format!("see how it is: cloister cvms get {cvm}")));
    };
    let load = [machine.loadavg_one, machine.loadavg_five, machine.loadavg_fifteen];
    let load = load.map(|load| format!("{}.{:02}", load / 100, load % 100)).join(", ");
    let free = |free: u64, total: u64| format!("{} of {} free", size(free), size(total));
    let mut fields = vec![
        ("System", Some(format!("{} {}", machine.os_name, machine.os_version))),
        ("Kernel", Some(machine.kernel_version)),
        ("CPU", Some(format!("{} × {}", machine.num_cpus, machine.cpu_model))),
        ("Memory", Some(free(machine.available_memory, machine.total_memory))),
        ("Load", Some(load)),
        ("Up for", Some(duration(machine.uptime))),
    ];
    let disks: Vec<_> =
        machine.disks.iter().map(|disk| (disk, free(disk.free_size, disk.total_size))).collect();
    fields.extend(disks.iter().map(|(disk, room)| (disk.mount_point.as_str(), Some(room.clone()))));
    output.fields(&fields);
    Ok(())
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    let (unit, name) = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        .into_iter()
        .find(|(unit, _)| bytes >= *unit)
        .unwrap_or((1, "B"));
    format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit)
}

/// Seconds as people read them.
fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!([size(0), size(1536), size(3 << 30)], ["0.0 B", "1.5 KiB", "3.0 GiB"]);
        assert_eq!([duration(59), duration(7260), duration(90_000)], ["0 min 59 s", "2 h 1 min", "1 d 1 h"]);
    }
}
