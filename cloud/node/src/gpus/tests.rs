use std::os::unix::fs::symlink;

use super::*;

/// Adds a device as sysfs shows it.
fn plug(devices: &Path, address: &str, class: &str, vendor: &str, device: &str, driver: Option<&str>) {
    let dir = devices.join(address);
    fs::create_dir_all(&dir).unwrap();
    for (name, text) in [("class", class), ("vendor", vendor), ("device", device)] {
        fs::write(dir.join(name), format!("{text}\n")).unwrap();
    }
    if let Some(driver) = driver {
        symlink(Path::new("../../../bus/pci/drivers").join(driver), dir.join("driver")).unwrap();
    }
}

fn host() -> (tempfile::TempDir, Gpus) {
    let dir = tempfile::tempdir().unwrap();
    plug(dir.path(), "0000:41:00.0", "0x030200", "0x10de", "0x2335", Some("vfio-pci"));
    plug(dir.path(), "0000:c1:00.0", "0x120000", "0x1002", "0x74a1", Some("amdgpu"));
    plug(dir.path(), "0000:05:00.0", "0x030000", "0x10de", "0xabcd", None);
    // A server's own display, a GPU's audio, a network card, and what is no device.
    plug(dir.path(), "0000:06:00.0", "0x030000", "0x1a03", "0x2000", Some("ast"));
    plug(dir.path(), "0000:41:00.1", "0x040300", "0x10de", "0x10fa", Some("vfio-pci"));
    plug(dir.path(), "0000:07:00.0", "0x020000", "0x8086", "0x1592", Some("vfio-pci"));
    plug(dir.path(), "nonsense", "0x030200", "0x10de", "0x2335", Some("vfio-pci"));
    fs::create_dir(dir.path().join("0000:08:00.0")).unwrap();
    let modes = [("0000:41:00.0".parse().unwrap(), GpuConfidentialMode::On)];
    let gpus = Gpus::new(dir.path().to_owned(), modes.into(), 1);
    (dir, gpus)
}

#[test]
fn the_inventory_is_what_sysfs_shows() {
    let (_dir, gpus) = host();
    assert!(gpus.known().is_empty() && gpus.scan() && !gpus.scan());
    let lines: Vec<_> = gpus
        .known()
        .iter()
        .map(|gpu| {
            let NodeGpu { slot, product_id, product_name, confidential_computing, assignable } = gpu;
            format!("{slot} {product_id} {product_name}, {confidential_computing:?}, {assignable}")
        })
        .collect();
    assert_eq!(
        lines,
        [
            "0000:05:00.0 10de:abcd NVIDIA GPU abcd, Unknown, false",
            "0000:41:00.0 10de:2335 NVIDIA H200 SXM 141GB, On, true",
            "0000:c1:00.0 1002:74a1 AMD Instinct MI300X, Off, false",
            "ffff:00:00.0 1b36:0005 Emulated GPU (development), Off, true",
        ]
    );
}

#[test]
fn only_what_is_there_and_kept_for_vms_is_given() {
    let (dir, gpus) = host();
    let at = |slot: &str| slot.parse::<PciAddress>().unwrap();
    let devices = gpus.devices(&[at("ffff:00:00.0"), at("0000:41:00.0")]).unwrap();
    assert_eq!(devices, [GpuDevice::Emulated, GpuDevice::Host(at("0000:41:00.0"))]);
    let refused = |slot: &str| gpus.devices(&[at(slot)]).unwrap_err();
    assert!(
        matches!(refused("0000:42:00.0"), VmError::Invalid(text) if text.contains("no GPU 0000:42:00.0"))
    );
    assert!(
        matches!(refused("0000:05:00.0"), VmError::OutOfResources(text) if text.contains("bind it to vfio-pci"))
    );
    // The host changes while the node runs.
    symlink("../drivers/vfio-pci", dir.path().join("0000:05:00.0/driver")).unwrap();
    assert_eq!(gpus.devices(&[at("0000:05:00.0")]).unwrap(), [GpuDevice::Host(at("0000:05:00.0"))]);
}

#[test]
fn a_host_without_pci_has_no_gpus() {
    let gpus = Gpus::new(PathBuf::from("/nowhere"), BTreeMap::new(), 0);
    assert!(!gpus.scan() && gpus.known().is_empty());
}
