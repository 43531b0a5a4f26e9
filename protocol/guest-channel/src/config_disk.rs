//! The configuration disk: a POSIX tar archive, zero-padded to whole 512-byte sectors.

use std::io::{self, Read, Write};

use cloister_app_compose::AppId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::NodeToken;

/// Largest app-compose document that a guest copies, in bytes (platform limit: 50 MB).
pub const MAX_APP_COMPOSE_BYTES: u64 = 50_000_000;
/// Largest sealed environment, in bytes.
pub const MAX_ENCRYPTED_ENV_BYTES: u64 = 256 * 1024;
/// Largest system configuration, in bytes.
pub const MAX_SYS_CONFIG_BYTES: u64 = 32 * 1024;
/// Largest user configuration, in bytes.
pub const MAX_USER_CONFIG_BYTES: u64 = 50_000_000;

const APP_COMPOSE: &str = "app-compose.json";
const SYS_CONFIG: &str = ".sys-config.json";
const ENCRYPTED_ENV: &str = ".encrypted-env";
const USER_CONFIG: &str = ".user-config";

/// What the node tells the guest about itself and the CVM; unmeasured, hence only hints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysConfig {
    /// The CVM's identity on the node.
    pub vm_uuid: Uuid,
    /// Application identity that the control plane assigned.
    pub app_id: AppId,
    /// Host name to set in the guest.
    pub hostname: String,
    /// Whether the node serves images at [`crate::IMAGE_MIRROR_ADDRESS`].
    pub image_mirror: bool,
    /// Unix time in milliseconds at which the node launched the VM, for guests without a clock.
    pub launched_at_ms: i64,
    /// Lets the node, and nobody else, read `/logs` and `/containers` of an app that keeps them private.
    pub node_token: NodeToken,
    /// The machine's description, JSON text, passed on to whoever verifies the guest's evidence.
    #[serde(default)]
    pub vm_config: String,
    /// Where KMSes release keys, `https://host:port` as the guest reaches them, tried in order. A wrong one
    /// can only refuse: keys of another KMS open nothing, and its identity is measured.
    #[serde(default)]
    pub kms_urls: Vec<String>,
}

/// All files of the configuration disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigDisk {
    /// Exact bytes of the app-compose document, never re-encoded.
    pub app_compose: Vec<u8>,
    /// The node's hints.
    pub sys_config: SysConfig,
    /// Environment variables sealed to the app key, if the tenant gave any.
    pub encrypted_env: Option<Vec<u8>>,
    /// The tenant's unmeasured configuration, if any.
    pub user_config: Option<Vec<u8>>,
}

/// A configuration disk that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigDiskError {
    /// The device or archive could not be read or written.
    #[error("cannot read or write the configuration archive")]
    Io(#[from] io::Error),
    /// A file exceeds the limit for its kind.
    #[error("{name} on the configuration disk has {bytes} bytes, more than the {limit} allowed")]
    TooLarge {
        /// File name in the archive.
        name: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit for it.
        limit: u64,
    },
    /// A file that every guest needs is absent.
    #[error("{0} is missing on the configuration disk")]
    Missing(&'static str),
    /// The system configuration is not the JSON it should be.
    #[error("the system configuration is malformed")]
    MalformedSysConfig(#[source] serde_json::Error),
}

const FILES: [(&str, u64); 4] = [
    (APP_COMPOSE, MAX_APP_COMPOSE_BYTES),
    (SYS_CONFIG, MAX_SYS_CONFIG_BYTES),
    (ENCRYPTED_ENV, MAX_ENCRYPTED_ENV_BYTES),
    (USER_CONFIG, MAX_USER_CONFIG_BYTES),
];

impl ConfigDisk {
    /// Writes the archive. The same contents give the same bytes: no times, no owners.
    pub fn write(&self, out: impl Write) -> Result<(), ConfigDiskError> {
        let sys_config = serde_json::to_vec(&self.sys_config).map_err(ConfigDiskError::MalformedSysConfig)?;
        let mut archive = tar::Builder::new(out);
        let mut append = |name: &str, contents: &[u8]| {
            let mut header = tar::Header::new_ustar();
            header.set_size(contents.len() as u64);
            header.set_mode(0o400);
            header.set_mtime(0);
            archive.append_data(&mut header, name, contents)
        };
        append(APP_COMPOSE, &self.app_compose)?;
        append(SYS_CONFIG, &sys_config)?;
        if let Some(env) = &self.encrypted_env {
            append(ENCRYPTED_ENV, env)?;
        }
        if let Some(config) = &self.user_config {
            append(USER_CONFIG, config)?;
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }

    /// Reads an archive that may be hostile: every size is checked before a byte is kept, names other
    /// than the known ones are skipped, and a name that comes twice is refused.
    pub fn read(input: impl Read) -> Result<Self, ConfigDiskError> {
        let mut contents: [Option<Vec<u8>>; 4] = [const { None }; 4];
        let mut archive = tar::Archive::new(input);
        // Raw: the reader would otherwise gather extended headers in memory without a limit.
        for entry in archive.entries()?.raw(true) {
            let mut entry = entry?;
            let path = entry.path_bytes().into_owned();
            let Some(((name, limit), slot)) =
                FILES.iter().zip(&mut contents).find(|((name, _), _)| name.as_bytes() == path)
            else {
                continue;
            };
            let bytes = entry.size();
            if bytes > *limit {
                return Err(ConfigDiskError::TooLarge { name, bytes, limit: *limit });
            }
            if slot.is_some() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} occurs twice")).into());
            }
            let mut data = Vec::new();
            entry.read_to_end(&mut data)?;
            *slot = Some(data);
        }
        let [app_compose, sys_config, encrypted_env, user_config] = contents;
        let sys_config = sys_config.ok_or(ConfigDiskError::Missing(SYS_CONFIG))?;
        Ok(Self {
            app_compose: app_compose.ok_or(ConfigDiskError::Missing(APP_COMPOSE))?,
            sys_config: serde_json::from_slice(&sys_config).map_err(ConfigDiskError::MalformedSysConfig)?,
            encrypted_env,
            user_config,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn disk(app_compose: Vec<u8>, encrypted_env: Option<Vec<u8>>) -> ConfigDisk {
        let sys_config = SysConfig {
            vm_uuid: Uuid::nil(),
            app_id: AppId::from_bytes([7; 20]),
            hostname: "hello".to_owned(),
            image_mirror: true,
            launched_at_ms: 1,
            node_token: NodeToken::from_bytes([9; 32]),
            vm_config: String::new(),
            kms_urls: vec!["https://10.0.2.2:12001".to_owned()],
        };
        ConfigDisk { app_compose, sys_config, encrypted_env, user_config: None }
    }

    proptest! {
        #[test]
        fn reads_what_was_written_even_with_padding(
            compose in proptest::collection::vec(any::<u8>(), 0..4096),
            env in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..512)),
            padding in 0usize..4,
        ) {
            let disk = disk(compose, env);
            let mut bytes = Vec::new();
            disk.write(&mut bytes).unwrap();
            bytes.resize(bytes.len() + padding * 512, 0);
            prop_assert_eq!(ConfigDisk::read(bytes.as_slice()).unwrap(), disk);
        }

        #[test]
        fn never_panics_on_hostile_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = ConfigDisk::read(bytes.as_slice());
        }
    }

    #[test]
    fn refuses_oversized_and_missing_files() {
        let mut bytes = Vec::new();
        let large = vec![0; usize::try_from(MAX_ENCRYPTED_ENV_BYTES).unwrap() + 1];
        disk(vec![], Some(large)).write(&mut bytes).unwrap();
        assert!(matches!(ConfigDisk::read(bytes.as_slice()), Err(ConfigDiskError::TooLarge { .. })));
        assert!(matches!(ConfigDisk::read([0u8; 1024].as_slice()), Err(ConfigDiskError::Missing(_))));
    }
}
