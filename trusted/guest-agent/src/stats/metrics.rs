//! The machine in Prometheus' text format, under the names that the public platform gives (its dashboards read
//! them; load averages are times 100 there too).

use std::fmt::Write as _;

use cloister_node_api::{GuestDisk, GuestStats};

type OfDisk = fn(&GuestDisk) -> u64;

/// Renders everything as gauges.
pub(crate) fn exposition(stats: &GuestStats) -> String {
    let mut out = Exposition::default();
    for (name, help, label, value) in [
        ("system_os_name", "Name of the operating system", "os_name", &stats.os_name),
        ("system_os_version", "Version of the operating system", "os_version", &stats.os_version),
        ("system_kernel_version", "Release of the kernel", "kernel_version", &stats.kernel_version),
        ("system_cpu_model", "Model of the first CPU", "cpu_model", &stats.cpu_model),
    ] {
        out.gauge(name, help, [(labels(&[(label, value)]), 1)]);
    }
    for (name, help, value) in [
        ("system_num_cpus", "CPUs", stats.num_cpus.into()),
        ("system_memory_total", "Memory in bytes", stats.total_memory),
        (
            "system_memory_available",
            "Memory that can be had without swapping, in bytes",
            stats.available_memory,
        ),
        ("system_memory_used", "Memory that is used, in bytes", stats.used_memory),
        ("system_memory_free", "Memory that nothing uses, in bytes", stats.free_memory),
        ("system_swap_total", "Swap in bytes", stats.total_swap),
        ("system_swap_used", "Swap that is used, in bytes", stats.used_swap),
        ("system_swap_free", "Swap that is free, in bytes", stats.free_swap),
        ("system_uptime", "Seconds since the boot", stats.uptime),
        ("system_load_average_1m", "Load average over 1 minute, times 100", stats.loadavg_one.into()),
        ("system_load_average_5m", "Load average over 5 minutes, times 100", stats.loadavg_five.into()),
        ("system_load_average_15m", "Load average over 15 minutes, times 100", stats.loadavg_fifteen.into()),
    ] {
        out.gauge(name, help, [(String::new(), value)]);
    }
    let of_disks: [(_, _, OfDisk); 4] = [
        ("disk_total_size", "Size of the file system in bytes", |disk| disk.total_size),
        ("disk_free_size", "Free space in bytes", |disk| disk.free_size),
        ("disk_used_size", "Used space in bytes", used),
        ("disk_usage_percentage", "Used space in percent", percentage),
    ];
    for (name, help, value) in of_disks {
        let of = |disk: &GuestDisk| {
            (labels(&[("name", &disk.name), ("mount_point", &disk.mount_point)]), value(disk))
        };
        out.gauge(name, help, stats.disks.iter().map(of));
    }
    out.0
}

const fn used(disk: &GuestDisk) -> u64 {
    disk.total_size.saturating_sub(disk.free_size)
}

fn percentage(disk: &GuestDisk) -> u64 {
    let percent = u128::from(used(disk)) * 100 / u128::from(disk.total_size.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_what_prometheus_reads() {
        let stats = GuestStats {
            os_name: "Debian GNU/Linux".to_owned(),
            os_version: "13 \"trixie\"\\\n".to_owned(),
            kernel_version: "6.12.0".to_owned(),
            cpu_model: "QEMU".to_owned(),
            num_cpus: 2,
            total_memory: 1024,
            available_memory: 512,
            used_memory: 512,
            free_memory: 256,
            total_swap: 0,
            used_swap: 0,
            free_swap: 0,
            uptime: 77,
            loadavg_one: 52,
            loadavg_five: 107,
            loadavg_fifteen: 1230,
            disks: vec![
                GuestDisk {
                    name: "/dev/dm-0".to_owned(),
                    mount_point: "/".to_owned(),
                    total_size: 300,
                    free_size: 0,
                },
                GuestDisk {
                    name: "/dev/mapper/data".to_owned(),
                    mount_point: "/data".to_owned(),
                    total_size: u64::MAX,
                    free_size: u64::MAX / 4,
                },
            ],
        };
        insta::assert_snapshot!(exposition(&stats));
    }
}
