//! What the named events of RTMR 3 say about the application (platform reference, section 4.4).

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use serde::{Deserialize, Serialize};

use crate::event_log::RTMR_OF_SOFTWARE;
use crate::{EventLog, RUNTIME_EVENT_TYPE, RuntimeEvent};

/// Names of the events that the platform itself measures. Applications must not emit them.
pub mod event_name {
    /// The first event; empty.
    pub const SYSTEM_PREPARING: &str = "system-preparing";
    /// Identity of the application, 20 bytes.
    pub const APP_ID: &str = "app-id";
    /// SHA-256 of the app-compose document.
    pub const COMPOSE_HASH: &str = "compose-hash";
    /// SHA-256 of a script that runs before the application; may occur several times.
    pub const INIT_SCRIPT_HASH: &str = "init-script-hash";
    /// Identity of this machine, 20 bytes, or empty.
    pub const INSTANCE_ID: &str = "instance-id";
    /// Ends what is measured before keys are asked for; empty.
    pub const BOOT_MR_DONE: &str = "boot-mr-done";
    /// Aggregate of the key provider, 32 bytes.
    pub const MR_KMS: &str = "mr-kms";
    /// The image, 32 bytes.
    pub const OS_IMAGE_HASH: &str = "os-image-hash";
    /// Who gave the keys, JSON.
    pub const KEY_PROVIDER: &str = "key-provider";
    /// File system of the data disk.
    pub const STORAGE_FS: &str = "storage-fs";
    /// Ends what the platform measures; empty. Everything behind it is said by the application.
    pub const SYSTEM_READY: &str = "system-ready";

    /// All of them, in the order of measuring, with those of other versions of the platform.
    pub const ALL: [&str; 15] = [
        SYSTEM_PREPARING,
        "rootfs-hash",
        APP_ID,
        COMPOSE_HASH,
        "ca-cert-hash",
        INIT_SCRIPT_HASH,
        "gpu-policy-hash",
        "gpu-attestation",
        INSTANCE_ID,
        BOOT_MR_DONE,
        MR_KMS,
        OS_IMAGE_HASH,
        KEY_PROVIDER,
        STORAGE_FS,
        SYSTEM_READY,
    ];

    /// Whether the name is the platform's.
    #[must_use]
    pub fn is_platform(name: &str) -> bool {
        ALL.contains(&name)
    }
}

/// Who gave an application its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyProvider {
    /// `kms`, `local-sgx`, `tpm` or `none`.
    pub name: String,
    /// Public key of the provider, hex of its `SubjectPublicKeyInfo`; empty without one.
    pub id: String,
}

/// What the platform measured about an application, and what the application measured itself. It is
/// worth as much as the comparison of the log with RTMR 3.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppInfo {
    /// The application.
    pub app_id: Option<AppId>,
    /// Its app-compose document.
    pub compose_hash: Option<ComposeHash>,
    /// The machine; also `None` where it has no identity on purpose.
    pub instance_id: Option<InstanceId>,
    /// The image, as the key provider knew it; only with one.
    pub os_image_hash: Option<OsImageHash>,
    /// Who gave the keys.
    pub key_provider: Option<KeyProvider>,
    /// The exact bytes of that, which aggregates are computed from.
    pub key_provider_payload: Option<Vec<u8>>,
    /// Aggregate of the key provider.
    pub mr_kms: Option<[u8; 32]>,
    /// File system of the data disk.
    pub storage_fs: Option<String>,
    /// SHA-256 of scripts that run before the application, in order.
    pub init_script_hashes: Vec<[u8; 32]>,
    /// Whether the platform was done measuring.
    pub ready: bool,
    /// Further events of the platform, in order.
    pub other_events: Vec<RuntimeEvent>,
    /// What the application measured, in order: its own words, whatever the names.
    pub application_events: Vec<RuntimeEvent>,
}

/// Why the events of RTMR 3 say nothing certain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAppInfo {
    /// An event without a name that its digest covers could hide any named one.
    #[error("event {index} extends RTMR 3 without being a runtime event, so its meaning is unknown")]
    Nameless {
        /// Position in the log, from 0.
        index: usize,
    },
    /// The digest joins name and payload by a colon, so a name with one could be cut in another way.
    #[error("event {index} has a colon in its name, so its meaning is ambiguous")]
    Colon {
        /// Position in the log, from 0.
        index: usize,
    },
    /// A name that counts once occurs twice.
    #[error("the event {0} occurs twice before the system was ready")]
    Twice(&'static str),
    /// The payload is not what the name stands for.
    #[error("the payload of the event {0} is malformed")]
    Payload(&'static str),
}

impl AppInfo {
    /// Reads the runtime events of RTMR 3 up to `system-ready`; those behind it are the application's.
    /// Does not compare the log with a register: see [`EventLog::builds`].
    pub fn from_event_log(log: &EventLog) -> Result<Self, InvalidAppInfo> {
        let mut info = Self::default();
        let mut seen = Vec::new();
        let entries = log.entries().iter().enumerate();
        for (index, entry) in entries.filter(|(_, entry)| entry.imr == RTMR_OF_SOFTWARE) {
            if entry.event_type != RUNTIME_EVENT_TYPE {
                return Err(InvalidAppInfo::Nameless { index });
            }
            let known = event_name::ALL.into_iter().find(|name| *name == entry.event);
            let payload = hex::decode(&entry.event_payload)
                .map_err(|_| InvalidAppInfo::Payload(known.unwrap_or("of another name")))?;
            if info.ready {
                info.application_events.push(RuntimeEvent::new(&*entry.event, payload));
                continue;
            }
            if entry.event.contains(':') {
                return Err(InvalidAppInfo::Colon { index });
            }
            let Some(name) = known else {
                info.other_events.push(RuntimeEvent::new(&*entry.event, payload));
                continue;
            };
            if seen.contains(&name) && name != event_name::INIT_SCRIPT_HASH {
                return Err(InvalidAppInfo::Twice(name));
            }
            seen.push(name);
            info.take(name, payload).ok_or(InvalidAppInfo::Payload(name))?;
        }
        Ok(info)
    }

    /// Keeps one event; `None` when its payload is malformed.
    fn take(&mut self, name: &'static str, payload: Vec<u8>) -> Option<()> {
        match name {
            event_name::APP_ID => self.app_id = Some(AppId::from_bytes(payload.try_into().ok()?)),
            event_name::COMPOSE_HASH => {
                self.compose_hash = Some(ComposeHash::from_bytes(payload.try_into().ok()?));
            }
            event_name::INSTANCE_ID | event_name::SYSTEM_PREPARING | event_name::BOOT_MR_DONE
                if payload.is_empty() => {}
            event_name::INSTANCE_ID => {
                self.instance_id = Some(InstanceId::from_bytes(payload.try_into().ok()?));
            }
            event_name::OS_IMAGE_HASH => {
                self.os_image_hash = Some(OsImageHash::from_bytes(payload.try_into().ok()?));
            }
            event_name::KEY_PROVIDER => {
                self.key_provider = Some(serde_json::from_slice(&payload).ok()?);
                self.key_provider_payload = Some(payload);
            }
            event_name::MR_KMS => self.mr_kms = Some(payload.try_into().ok()?),
            event_name::STORAGE_FS => self.storage_fs = Some(String::from_utf8(payload).ok()?),
            event_name::INIT_SCRIPT_HASH => self.init_script_hashes.push(payload.try_into().ok()?),
            event_name::SYSTEM_READY if payload.is_empty() => self.ready = true,
            event_name::SYSTEM_PREPARING | event_name::BOOT_MR_DONE | event_name::SYSTEM_READY => {
                return None;
            }
            _ => self.other_events.push(RuntimeEvent::new(name, payload)),
        }
        Some(())
    }
}
