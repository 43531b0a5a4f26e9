//! The real hypervisor with a guest of a few instructions: what no pretending program can show.

use std::fs;
use std::process::Command;

use cloister_node::OnExit;
use cloister_node_api::{Platform, VmState, paths};
use reqwest::Method;

use crate::support::{World, spec, write_image_with};

const PROGRAM: &str = "qemu-system-x86_64";
/// What the program boots by itself; its Debian package depends on this one.
const FIRMWARE: &str = "/usr/share/seabios/bios-256k.bin";

/// A kernel in the format that boot loaders know whose code writes `up` to the console and halts.
fn tiny_kernel() -> Vec<u8> {
    const CODE: [u8; 16] = [
        0xba, 0xf8, 0x03, // mov dx, 0x3f8
        0xb0, b'u', 0xee, // mov al, 'u'; out dx, al
        0xb0, b'p', 0xee, // mov al, 'p'; out dx, al
        0xb0, b'\n', 0xee, // mov al, '\n'; out dx, al
        0xfa, 0xf4, 0xeb, 0xfd, // cli; hlt; jmp to hlt
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

#[tokio::test(flavor = "multi_thread")]
async fn the_real_hypervisor_runs_is_adopted_and_ends() {
    if Command::new(PROGRAM).arg("--version").output().is_err() {
        println!("SKIPPED: {PROGRAM} is not installed (package qemu-system-x86)");
        return;
    }
    let Ok(firmware) = fs::read(FIRMWARE) else {
        println!("SKIPPED: {FIRMWARE} is not installed (package seabios)");
        return;
    };
    let mut world = World::prepared().await;
    world.config.qemu = PROGRAM.into();
    world.config.platform = Some(Platform::Emulation);
    let images = world.dir.path().join("images");
    let spec = spec(1, write_image_with(&images, "tiny", "quiet", &firmware, &tiny_kernel()));
    let vm = spec.vm_uuid;
    world.start().await;
    world.prepare(&spec).await.unwrap();
    assert_eq!(world.power(vm, "start").await.unwrap().state, VmState::Running);
    let serial = format!("{}/{vm}/serial", paths::VMS);
    while world.raw(Method::GET, &serial, None).await.1 != "up\n" {
        assert_eq!(world.get(vm).await.unwrap().state, VmState::Running);
        tokio::task::yield_now().await;
    }
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
