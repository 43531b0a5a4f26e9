use super::*;

fn machine(platform: Platform) -> Machine {
    let directory = |name: &str| PathBuf::from("/var/lib/cloister").join(name);
    Machine {
        vm: Uuid::from_u128(7),
        vcpu: 2,
        memory_mb: 2048,
        protection: Protection::new(platform, ComposeHash::from_bytes([0xc0; 32]), 51),
        boot: BootFiles {
            kernel: directory("image/vmlinuz"),
            initrd: directory("image/initrd.img"),
            rootfs: directory("image/rootfs.erofs"),
            firmware: matches!(platform, Platform::Tdx | Platform::SevSnp)
                .then(|| directory("image/ovmf.fd")),
            cmdline: "console=ttyS0 quiet".to_owned(),
        },
        disks: Disks { config: directory("vm/config.img"), data: directory("vm/data.img") },
        channels: Channels {
            pid_file: directory("vm/qemu.pid"),
            serial_log: directory("vm/serial.log"),
            console: None,
            monitor: directory("run/qmp"),
            events: directory("run/events"),
            status: directory("run/status"),
            tee: directory("run/tee"),
        },
        mirror: ImageMirror {
            relay_command: vec!["/usr/bin/cloister".to_owned(), "relay".to_owned()],
            socket: directory("run/mirror"),
        },
        gpus: Vec::new(),
    }
}

fn text(machine: &Machine) -> String {
    machine.arguments().join("\n").replace("\n-", "\n\n-")
}

#[test]
fn command_lines_of_all_platforms() {
    for platform in [Platform::Emulation, Platform::Kvm, Platform::Tdx, Platform::SevSnp] {
        insta::assert_snapshot!(format!("{platform:?}"), text(&machine(platform)));
    }
}

#[test]
fn gpus_on_all_platforms() {
    let host =
        |count: u8| (0..count).map(|bus| GpuDevice::Host(format!("0000:{bus:02x}:00.0").parse().unwrap()));
    let of_gpus = |machine: &Machine| {
        let without = Machine { gpus: Vec::new(), ..machine.clone() }.arguments();
        let mut with = machine.arguments();
        let rest = with.split_off(without.len());
        let changed = without.iter().zip(&with).filter(|(a, b)| a != b).map(|(a, b)| format!("{a} → {b}"));
        changed.chain([String::new()]).chain(rest).collect::<Vec<_>>().join("\n").replace("\n-", "\n\n-")
    };
    for platform in [Platform::Tdx, Platform::SevSnp, Platform::Emulation] {
        for count in [0, 1, 8] {
            let gpus = match platform {
                Platform::Emulation => vec![GpuDevice::Emulated; usize::from(count)],
                _ => host(count).collect(),
            };
            let machine = Machine { gpus, ..machine(platform) };
            insta::assert_snapshot!(format!("{platform:?}-gpus-{count}"), of_gpus(&machine));
        }
    }
}

#[test]
fn the_console_of_a_development_image_is_a_socket_and_its_log_the_same() {
    let mut machine = machine(Platform::Emulation);
    let production = text(&machine);
    assert!(production.contains("file,id=serial,append=on,path=/var/lib/cloister/vm/serial.log"));
    machine.channels.console = Some(PathBuf::from("/run/serial"));
    let socket = "socket,id=serial,server=on,wait=off,path=/run/serial";
    let log = "logfile=/var/lib/cloister/vm/serial.log,logappend=on";
    assert!(text(&machine).contains(&format!("{socket},{log}")), "{}", text(&machine));
}

#[test]
fn paths_with_commas_quotes_and_spaces_stay_one_value() {
    let mut machine = machine(Platform::Emulation);
    machine.disks.data = PathBuf::from("/data,readonly=on/a b.img");
    machine.mirror.socket = PathBuf::from("/run/it's, here");
    let text = text(&machine);
    assert!(text.contains("file.filename=/data,,readonly=on/a b.img"), "{text}");
    assert!(text.contains(r"'/run/it'\''s,, here'"), "{text}");
}

#[test]
fn mac_addresses_follow_the_rule_of_the_platform() {
    let address = mac_address(Uuid::from_u128(7));
    let first = u8::from_str_radix(&address[..2], 16).unwrap();
    assert_eq!(first & 0x03, 0x02);
    assert_ne!(address, mac_address(Uuid::from_u128(8)));
}
