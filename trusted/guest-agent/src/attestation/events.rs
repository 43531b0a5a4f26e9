//! What a boot measures into RTMR 3, in the order of the platform (platform reference, section 4.4).

use cloister_app_compose::{AppId, ComposeHash, InstanceId};
use cloister_evidence::{RuntimeEvent, event_name};

/// File system of the data disk, whatever the document asks for.
const STORAGE_FS: &str = "ext4";

/// Who gave this application its keys: JSON text, measured as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyProviderInfo(String);

impl KeyProviderInfo {
    /// Nobody.
    pub(crate) fn none() -> Self {
        Self(r#"{"name":"none","id":""}"#.to_owned())
    }

    /// A KMS, known by the `SubjectPublicKeyInfo` (DER) of its root.
    pub(crate) fn kms(root: &[u8]) -> Self {
        Self(format!(r#"{{"name":"kms","id":"{}"}}"#, hex::encode(root)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which application this is; known before the disks are ready.
pub(super) fn of_application(app_id: &AppId, compose_hash: &ComposeHash) -> Vec<RuntimeEvent> {
    vec![
        RuntimeEvent::new(event_name::SYSTEM_PREPARING, []),
        RuntimeEvent::new(event_name::APP_ID, *app_id.as_bytes()),
        RuntimeEvent::new(event_name::COMPOSE_HASH, *compose_hash.as_bytes()),
    ]
}

/// Which CVM of the application this is; a KMS releases keys to a boot that has come exactly this far.
pub(super) fn of_instance(instance: Option<&InstanceId>) -> Vec<RuntimeEvent> {
    let instance = instance.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    vec![
        RuntimeEvent::new(event_name::INSTANCE_ID, instance),
        RuntimeEvent::new(event_name::BOOT_MR_DONE, []),
    ]
}

/// Who gave it its keys, and which image it is as the KMS verified it.
pub(super) fn of_keys(provider: &KeyProviderInfo, os_image_hash: Option<&[u8]>) -> Vec<RuntimeEvent> {
    let image = os_image_hash.map(|hash| RuntimeEvent::new(event_name::OS_IMAGE_HASH, hash));
    image.into_iter().chain([RuntimeEvent::new(event_name::KEY_PROVIDER, provider.as_str())]).collect()
}

/// How it was prepared. Whatever comes behind the last event is the application's.
pub(super) fn of_system() -> Vec<RuntimeEvent> {
    vec![
        RuntimeEvent::new(event_name::STORAGE_FS, STORAGE_FS),
        RuntimeEvent::new(event_name::SYSTEM_READY, []),
    ]
}

#[cfg(test)]
mod tests {
    use cloister_evidence::EventLog;

    use super::*;

    const APP: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";
    const HASH: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272ffa8f7ad7440e5177d2fec85";
    const INSTANCE: &str = "836a333a23811140f86b94c3c8a7cb0deef0a6d5";
    const ROOT: &str = "3059301306072a8648ce3d020106082a8648ce3d030107034200046ff03b949241ce1dadd43519e6960e0a85b41a69a05c328103aa2bce1594ca163c4f753a55bf01dc53f6c0b0c7eee78b40c6ff7d25a96e2282b989cef71c144a";

    fn boot(instance: Option<&InstanceId>, keys: Vec<RuntimeEvent>) -> Vec<RuntimeEvent> {
        let application = of_application(&APP.parse().unwrap(), &HASH.parse().unwrap());
        [application, of_instance(instance), keys, of_system()].concat()
    }

    #[test]
    fn a_boot_measures_the_documented_events_in_their_order() {
        let events = boot(Some(&INSTANCE.parse().unwrap()), of_keys(&KeyProviderInfo::none(), None));
        let log = EventLog::new(events.iter().map(RuntimeEvent::entry).collect());
        insta::assert_json_snapshot!(log);
        assert!(of_instance(None)[0].payload.is_empty());
    }

    #[test]
    fn a_boot_with_keys_of_a_kms_measures_the_documented_chain() {
        let keys = of_keys(&KeyProviderInfo::kms(&hex::decode(ROOT).unwrap()), Some(&[0xE6; 32]));
        let events = boot(Some(&INSTANCE.parse().unwrap()), keys);
        let log = EventLog::new(events.iter().map(RuntimeEvent::entry).collect());
        insta::assert_json_snapshot!(log);
    }

    /// The worked chain of platform reference, section 4.4, whose file system is another.
    #[test]
    fn the_registers_are_those_of_the_published_vectors() {
        let image = hex::decode("e6f5cfec20c02e7b97baa213d0f718020b55e040172d90ccbcb946d56c8b09db").unwrap();
        let keys = of_keys(&KeyProviderInfo::kms(&hex::decode(ROOT).unwrap()), Some(&image));
        let mut events = boot(Some(&INSTANCE.parse().unwrap()), keys);
        for event in events.iter_mut().filter(|event| event.name == event_name::STORAGE_FS) {
            *event = RuntimeEvent::new(event_name::STORAGE_FS, "zfs");
        }
        let log = EventLog::new(events.iter().map(RuntimeEvent::entry).collect());
        let [.., rtmr3] = log.replay().unwrap();
        assert_eq!(
            rtmr3.to_string(),
            "4f203e687859f8c339febb0ae0863059a771d3e51c707f285f7a7a67194ce58cb10b5d7281e332ec0433531d74fab45b"
        );
    }

    #[test]
    fn digests_are_those_of_the_published_vectors() {
        let events = boot(None, of_keys(&KeyProviderInfo::none(), None));
        let digest =
            |name: &str| events.iter().find(|event| event.name == name).unwrap().digest().to_string();
        for (name, start) in [
            ("system-preparing", "f9974020ef507068"),
            ("app-id", "2e9db2adc7dac642"),
            ("boot-mr-done", "98bd7e6bd3952720"),
            ("system-ready", "1a76b2a80a0be71e"),
        ] {
            assert!(digest(name).starts_with(start), "{name}");
        }
    }
}
