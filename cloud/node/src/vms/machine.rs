//! From an order to a machine that can be started.

use cloister_app_compose::ComposeHash;
use cloister_development_tee::MachineRegisters;
use cloister_evidence::mr_config_id_v1;
use cloister_guest_channel::config_disk::{ConfigDisk, SysConfig};
use cloister_node_api::VmSpec;
use sha2::{Digest, Sha256};

use super::directory::{GuestRecord, Order, VmDirectory};
use super::{Host, spec};
use crate::clock;
use crate::development::is_development;
use crate::error::VmError;
use crate::guest_images::GuestImage;
use crate::host::require_free_disk;
use crate::vmm::{Channels, ImageMirror, Machine, Process, Protection};

/// Makes everything that a start needs on disk and describes the machine. Blocks.
pub(super) fn make(
    dir: &VmDirectory,
    host: &Host,
    order: &Order,
    guest: &GuestRecord,
) -> Result<Machine, VmError> {
    let spec = &order.spec;
    let platform = host.hypervisor.platform;
    let image = host.images.find(spec.os_image_hash).ok_or(VmError::BadImage(spec.os_image_hash))?;
    // It is measured on every platform: the host's own would be whatever the host has.
    if image.boot.firmware.is_none() {
        return Err(VmError::NoFirmware);
    }
    let need = spec::need(spec)?;
    let gpus = host.gpus.devices(&need.gpus)?;
    require_free_disk(&host.data_dir)?;
    dir.create().map_err(VmError::storage("make the CVM's directory"))?;
    dir.ensure_data(spec.disk_gb).map_err(VmError::storage("make the CVM's disk"))?;
    dir.rotate_serial().map_err(VmError::storage("rotate the CVM's console log"))?;
    dir.write_need(&need).map_err(VmError::storage("store the CVM's state"))?;
    dir.write_guest(guest).map_err(VmError::storage("store the CVM's state"))?;
    dir.write_config(&config_disk(order, &image)?).map_err(VmError::ConfigDisk)?;
    let compose_hash = ComposeHash::from_bytes(Sha256::digest(&spec.app_compose).into());
    if is_development(platform) {
        measure_launch(dir, spec, &image, &compose_hash)?;
    }
    // A production image takes nothing that is typed there.
    let console = image.description.is_dev.then(|| dir.console_socket());
    Ok(Machine {
        vm: spec.vm_uuid,
        vcpu: spec.vcpu,
        memory_mb: spec.memory_mb,
        protection: Protection::new(platform, compose_hash, host.snp_c_bit_position),
        boot: image.boot,
        disks: dir.disks(),
        channels: Channels { console, ..dir.channels() },
        mirror: ImageMirror { relay_command: host.relay_command.clone(), socket: dir.mirror_socket() },
        gpus,
    })
}

/// Starts the registers of the machine anew, unless it runs: they are those of its whole life.
fn measure_launch(
    dir: &VmDirectory,
    spec: &VmSpec,
    image: &GuestImage,
    compose_hash: &ComposeHash,
) -> Result<(), VmError> {
    let found =
        Process::find(&dir.channels().pid_file).map_err(VmError::storage("find the CVM's process"))?;
    if found.is_none() {
        let memory_size = image.vm_config(spec.vcpu, spec.memory_mb).memory_size;
        let config_id = *mr_config_id_v1(compose_hash).as_bytes();
        MachineRegisters::launch(&dir.registers(), &image.measurement, spec.vcpu, memory_size, config_id)?;
    }
    Ok(())
}

fn config_disk(order: &Order, image: &GuestImage) -> Result<ConfigDisk, VmError> {
    let spec = &order.spec;
    let vm_config = image.vm_config(spec.vcpu, spec.memory_mb);
    let encrypted_env = spec.encrypted_env.as_deref().map(spec::decode_env).transpose()?;
    Ok(ConfigDisk {
        app_compose: spec.app_compose.clone().into_bytes(),
        sys_config: SysConfig {
            kms_urls: spec.kms_urls.clone(),
            vm_uuid: spec.vm_uuid,
            app_id: spec.app_id,
            hostname: spec::hostname(&spec.name),
            image_mirror: true,
            launched_at_ms: clock::now().as_millisecond(),
            node_token: order.node_token.clone(),
            vm_config: serde_json::json!(vm_config).to_string(),
        },
        encrypted_env,
        user_config: spec.user_config.clone().map(String::into_bytes),
    })
}
