//! From an order to a machine that can be started.

use cloister_app_compose::ComposeHash;
use cloister_guest_channel::config_disk::{ConfigDisk, SysConfig};
use sha2::{Digest, Sha256};

use super::directory::{GuestRecord, Order, VmDirectory};
use super::{Host, spec};
use crate::clock;
use crate::error::VmError;
use crate::host::require_free_disk;
use crate::vmm::{ImageMirror, Machine, Protection};

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
    if spec::needs_firmware(platform) && image.boot.firmware.is_none() {
        return Err(VmError::NoFirmware(platform));
    }
    require_free_disk(&host.data_dir)?;
    dir.create().map_err(VmError::storage("make the CVM's directory"))?;
    dir.ensure_data(spec.disk_gb).map_err(VmError::storage("make the CVM's disk"))?;
    dir.rotate_serial().map_err(VmError::storage("rotate the CVM's console log"))?;
    dir.write_guest(guest).map_err(VmError::storage("store the CVM's state"))?;
    dir.write_config(&config_disk(order)?).map_err(VmError::ConfigDisk)?;
    let compose_hash = ComposeHash::from_bytes(Sha256::digest(&spec.app_compose).into());
    Ok(Machine {
        vm: spec.vm_uuid,
        vcpu: spec.vcpu,
        memory_mb: spec.memory_mb,
        protection: Protection::new(platform, compose_hash, host.snp_c_bit_position),
        boot: image.boot,
        disks: dir.disks(),
        channels: dir.channels(),
        mirror: ImageMirror { relay_command: host.relay_command.clone(), socket: dir.mirror_socket() },
    })
}

fn config_disk(order: &Order) -> Result<ConfigDisk, VmError> {
    let spec = &order.spec;
    let encrypted_env = spec.encrypted_env.as_deref().map(spec::decode_env).transpose()?;
    Ok(ConfigDisk {
        app_compose: spec.app_compose.clone().into_bytes(),
        sys_config: SysConfig {
            vm_uuid: spec.vm_uuid,
            app_id: spec.app_id,
            hostname: spec::hostname(&spec.name),
            image_mirror: true,
            launched_at_ms: clock::now().as_millisecond(),
            node_token: order.node_token.clone(),
            vm_config: String::new(),
        },
        encrypted_env,
        user_config: spec.user_config.clone().map(String::into_bytes),
    })
}
