//! The real hypervisor with a guest of a few instructions: what no pretending program can show.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use cloister_node::OnExit;
use cloister_node_api::{ExitReason, Platform, PortProtocol, VmNetwork, VmSpec, VmState, paths};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use uuid::Uuid;

use crate::ports::{free_ports, mapping};
use crate::support::{PATIENCE, World, spec, write_image_with};

const PROGRAM: &str = "qemu-system-x86_64";
/// What the program boots by itself; its Debian package depends on this one.
const FIRMWARE: &str = "/usr/share/seabios/bios-256k.bin";

/// A kernel in the format that boot loaders know whose code writes `up` to the console, and restarts the machine at the
/// press of a key.
fn tiny_kernel() -> Vec<u8> {
    const CODE: [u8; 30] = [
        0xfa, // cli
        0xba, 0xf8, 0x03, // mov dx, 0x3f8
        0xb0, b'u', 0xee, // mov al, 'u'; out dx, al
        0xb0, b'p', 0xee, // mov al, 'p'; out dx, al
        0xb0, b'\n', 0xee, // mov al, '\n'; out dx, al
        0xb9, 0xff, 0xff, 0xe2, 0xfe, // mov cx, 0xffff; loop to loop
        0xe4, 0x64, 0xa8, 0x01, 0x74, 0xf5, // in al, 0x64; test al, 1; jz to mov
        0xba, 0xf9, 0x0c, 0xb0, 0x06, 0xee, // mov dx, 0xcf9; mov al, 6; out dx, al
    ];
    let mut kernel = vec![0; 8192];
    let mut put = |offset: usize, bytes: &[u8]| kernel[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[1]); // sectors of set-up code
    put(0x1fe, &[0x55, 0xaa]);
    put(0x200, &[0xeb, 0x6e]); // jmp to the code
    put(0x202, b"HdrS");
    put(0x206, &[0x06, 0x02]); // protocol 2.6
    put(0x211, &[0x01]); // loaded high
    put(0x22c, &0x37ff_ffff_u32.to_le_bytes()); // highest address of the initial RAM disk
    put(0x270, &CODE);
    kernel
}

/// A world with the real hypervisor and the specification of a VM that it runs; `None` where something is not
/// installed.
async fn real_world() -> Option<(World, VmSpec)> {
    if Command::new(PROGRAM).arg("--version").output().is_err() {
        println!("SKIPPED: {PROGRAM} is not installed (package qemu-system-x86)");
        return None;
    }
    let Ok(firmware) = fs::read(FIRMWARE) else {
        println!("SKIPPED: {FIRMWARE} is not installed (package seabios)");
        return None;
    };
    let mut world = World::prepared().await;
    world.config.qemu = PROGRAM.into();
    world.config.platform = Some(Platform::Emulation);
    let images = world.dir.path().join("images");
    let spec = spec(1, write_image_with(&images, "tiny", "quiet", &firmware, &tiny_kernel()));
    Some((world, spec))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_hypervisor_runs_is_adopted_and_ends() {
    let Some((mut world, spec)) = real_world().await else { return };
    let vm = spec.vm_uuid;
    world.start().await;
    world.prepare(&spec).await.unwrap();
    assert_eq!(world.power(vm, "start").await.unwrap().state, VmState::Running);
    until_up(&world, vm, 1).await;
    let backends = world.node.as_ref().unwrap().backends();
    let port = backends.connect(vm, 80).await.unwrap().peer_addr().unwrap();
    drop(backends);
    let pid = world.pid(vm);

    world.stop(OnExit::LeaveRunning).await;
    world.start().await;
    assert_eq!(world.get(vm).await.unwrap().state, VmState::Running);
    let backends = world.node.as_ref().unwrap().backends();
    assert_eq!(backends.connect(vm, 80).await.unwrap().peer_addr().unwrap(), port, "the same forward");
    assert_ne!(backends.connect(vm, 81).await.unwrap().peer_addr().unwrap(), port);
    assert_eq!(world.pid(vm), pid);

    assert_eq!(world.power(vm, "stop").await.unwrap().state, VmState::Stopped);
    assert_eq!(world.pid(vm), None, "the hypervisor removed its PID file");
    fs::write(world.vm_dir(vm).join("data.img"), "").unwrap();
    world.power(vm, "start").await.unwrap();
    assert_eq!(fs::metadata(world.vm_dir(vm).join("data.img")).unwrap().len(), 1 << 30);
    world.end().await;
}

/// A device behind a port, as the hypervisor tells: the port, vendor and device, and where the firmware placed its
/// memory.
type Behind = (String, [u64; 2], Option<i64>);

/// What the hypervisor answers to a command that it understands.
async fn ask_monitor(world: &World, vm: Uuid, command: Value) -> Value {
    let socket = world.dir.path().join("node/run").join(vm.simple().to_string()).join("qmp");
    let (read, mut write) = UnixStream::connect(socket).await.unwrap().into_split();
    let mut lines = BufReader::new(read).lines();
    let command = format!("{{\"execute\":\"qmp_capabilities\",\"id\":0}}\n{command}\n");
    write.write_all(command.as_bytes()).await.unwrap();
    loop {
        let line: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        assert_eq!(line["error"], Value::Null);
        if line["return"] != Value::Null && line["id"] != 0 {
            return line["return"].clone();
        }
    }
}

/// What is behind ports.
async fn devices_behind_ports(world: &World, vm: Uuid) -> Vec<Behind> {
    let buses = ask_monitor(world, vm, json!({ "execute": "query-pci" })).await;
    let mut found = Vec::new();
    for port in buses[0]["devices"].as_array().unwrap() {
        for device in port["pci_bridge"]["devices"].as_array().into_iter().flatten() {
            let id = ["vendor", "device"].map(|name| device["id"][name].as_u64().unwrap());
            let mut regions = device["regions"].as_array().unwrap().iter();
            let memory = regions.find(|region| region["size"] == 8_u64 << 30);
            let placed = memory.and_then(|region| region["address"].as_i64());
            found.push((port["qdev_id"].as_str().unwrap().to_owned(), id, placed));
        }
    }
    found
}

/// Returns when the guest has come up for so many times, and the node listens to its hypervisor, which it tries again after a
/// while where that was too busy.
async fn until_up(world: &World, vm: Uuid, times: usize) {
    let serial = format!("{}/{vm}/serial", paths::VMS);
    let is_up = async || world.raw(Method::GET, &serial, None).await.1 == "up\n".repeat(times);
    let is_heard = async || {
        let devices = ask_monitor(world, vm, json!({ "execute": "query-chardev" })).await;
        let events = devices.as_array().unwrap().iter().find(|device| device["label"] == "events").cloned();
        !events.unwrap()["filename"].as_str().unwrap().starts_with("disconnected")
    };
    let both = async {
        while !(is_up().await && is_heard().await) {
            assert_eq!(world.get(vm).await.unwrap().state, VmState::Running);
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, both).await.expect("it comes up");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_hypervisor_tells_why_a_vm_ended() {
    let Some((mut world, spec)) = real_world().await else { return };
    let vm = spec.vm_uuid;
    world.start().await;
    world.prepare(&spec).await.unwrap();
    let signal = |world: &World, name: &str| {
        let pid = world.pid(vm).unwrap().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    let steps =
        [("key", ExitReason::Restarted), ("-TERM", ExitReason::ToldToEnd), ("-KILL", ExitReason::Silent)];
    for (times, (step, expected)) in (1..).zip(steps) {
        let started = world.power(vm, "start").await.unwrap();
        assert_eq!((started.state, started.exit_reason), (VmState::Running, None));
        until_up(&world, vm, times).await;
        // A node that took it over hears it, too.
        world.stop(OnExit::LeaveRunning).await;
        world.start().await;
        until_up(&world, vm, times).await;
        if step == "key" {
            let key = json!([{ "type": "qcode", "data": "a" }]);
            ask_monitor(&world, vm, json!({ "execute": "send-key", "arguments": { "keys": key } })).await;
        } else {
            signal(&world, step);
        }
        let report = world.reported_state(vm, VmState::Exited).await;
        assert_eq!(report.exit_reason, Some(expected), "{step}");
    }
    // What was told outlives the node.
    world.stop(OnExit::LeaveRunning).await;
    world.start().await;
    assert_eq!(world.get(vm).await.unwrap().exit_reason, Some(ExitReason::Silent));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_hypervisor_has_gpus_at_ports_of_their_own_and_maps_ports() {
    let Some((mut world, mut spec)) = real_world().await else { return };
    let vm = spec.vm_uuid;
    let (first, last) = free_ports(2).bounds();
    world.config.emulated_gpus = 2;
    world.config.port_range = cloister_node::PortRange::new(first, last);
    world.config.port_address = Ipv4Addr::LOCALHOST;
    world.start().await;
    spec.gpus = world.report(|_| true).await.gpus.into_iter().map(|gpu| gpu.slot).collect();
    spec.ports = vec![mapping(PortProtocol::Tcp, first, 80), mapping(PortProtocol::Udp, first, 53)];
    world.prepare(&spec).await.unwrap();
    world.power(vm, "start").await.unwrap();
    let network = async |world: &World| {
        let path = format!("{}/{vm}/network", paths::VMS);
        let network: VmNetwork = world.call(Method::GET, &path, None).await.unwrap();
        let mut ports: Vec<_> =
            network.ports.iter().map(|port| (port.protocol, port.host_port, port.vm_port)).collect();
        ports.sort_unstable();
        ports
    };
    assert_eq!(network(&world).await, [(PortProtocol::Tcp, first, 80), (PortProtocol::Udp, first, 53)]);
    spec.ports = vec![mapping(PortProtocol::Tcp, first, 81), mapping(PortProtocol::Udp, last, 53)];
    world.prepare(&spec).await.unwrap();
    assert_eq!(network(&world).await, [(PortProtocol::Tcp, first, 81), (PortProtocol::Udp, last, 53)]);
    std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, first)).unwrap();

    // The firmware numbers the buses behind the ports first, and then gives out addresses.
    let is_placed = |found: &[Behind]| {
        found.len() == 2 && found.iter().all(|(_, _, address)| address.is_some_and(|at| at > 0))
    };
    let found = loop {
        let found = devices_behind_ports(&world, vm).await;
        if is_placed(&found) {
            break found;
        }
        assert_eq!(world.get(vm).await.unwrap().state, VmState::Running);
        tokio::task::yield_now().await;
    };
    for (index, (port, id, address)) in found.iter().enumerate() {
        assert_eq!((port.as_str(), *id), (["pci.1", "pci.2"][index], [0x1b36, 5]));
        assert!(address.is_some_and(|at| at >= 4 << 30), "too large for below 4 GiB: {address:?}");
    }
    assert_eq!(world.power(vm, "stop").await.unwrap().state, VmState::Stopped);
    world.end().await;
}
