//! What the node handed over: the configuration disk, read once and checked.

use std::fs::File;
use std::io::BufReader;

use cloister_app_compose::{AppCompose, ComposeError};
use cloister_guest_channel::CONFIG_DISK_SERIAL;
use cloister_guest_channel::config_disk::{ConfigDisk, ConfigDiskError, SysConfig};

use super::disks::{self, DiskError};

/// Everything that this boot is about.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// The application, in the exact bytes that were hashed.
    pub(crate) app: AppCompose,
    /// The node's hints.
    pub(crate) system: SysConfig,
    /// The environment that the deployer sealed, if there is one.
    pub(crate) encrypted_env: Option<Vec<u8>>,
    /// The deployer's unmeasured configuration, if there is one: for the application, never for the agent.
    pub(crate) user_config: Option<Vec<u8>>,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigurationError {
    #[error("no configuration disk")]
    Disk(#[from] DiskError),
    #[error("cannot open the configuration disk")]
    Open(#[from] std::io::Error),
    #[error("cannot use the configuration disk")]
    Contents(#[from] ConfigDiskError),
    #[error(transparent)]
    AppCompose(#[from] ComposeError),
}

impl Configuration {
    /// Finds and reads the configuration disk.
    pub(crate) fn read() -> Result<Self, ConfigurationError> {
        let disk = disks::find(CONFIG_DISK_SERIAL)?;
        let ConfigDisk { app_compose, sys_config, encrypted_env, user_config } =
            ConfigDisk::read(BufReader::new(File::open(disk.device)?))?;
        Ok(Self { app: AppCompose::parse(&app_compose)?, system: sys_config, encrypted_env, user_config })
    }
}
