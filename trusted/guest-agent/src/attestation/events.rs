//! What a boot measures into RTMR 3, in the order of the platform (platform reference, section 4.4).

use cloister_app_compose::{AppId, ComposeHash, InstanceId};
use cloister_evidence::{RuntimeEvent, event_name};

/// There is no key management service: nobody gave this application its keys.
pub(crate) const KEY_PROVIDER: &str = r#"{"name":"none","id":""}"#;
/// File system of the data disk, whatever the document asks for.
const STORAGE_FS: &str = "ext4";

/// Which application this is; known before the disks are ready.
pub(super) fn of_application(app_id: &AppId, compose_hash: &ComposeHash) -> Vec<RuntimeEvent> {
    vec![
        RuntimeEvent::new(event_name::SYSTEM_PREPARING, []),
        RuntimeEvent::new(event_name::APP_ID, *app_id.as_bytes()),
        RuntimeEvent::new(event_name::COMPOSE_HASH, *compose_hash.as_bytes()),
    ]
}

/// Which CVM of the application this is, and how it was prepared. Whatever comes behind the last event is
/// the application's.
pub(super) fn of_instance(instance: Option<&InstanceId>) -> Vec<RuntimeEvent> {
    let instance = instance.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    vec![
        RuntimeEvent::new(event_name::INSTANCE_ID, instance),
        RuntimeEvent::new(event_name::BOOT_MR_DONE, []),
        RuntimeEvent::new(event_name::KEY_PROVIDER, KEY_PROVIDER),
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

    #[test]
    fn a_boot_measures_the_documented_events_in_their_order() {
        let mut events = of_application(&APP.parse().unwrap(), &HASH.parse().unwrap());
        events.extend(of_instance(Some(&INSTANCE.parse().unwrap())));
        let log = EventLog::new(events.iter().map(RuntimeEvent::entry).collect());
        insta::assert_json_snapshot!(log);
        assert!(of_instance(None)[0].payload.is_empty());
    }

    #[test]
    fn digests_are_those_of_the_published_vectors() {
        let events = of_application(&APP.parse().unwrap(), &HASH.parse().unwrap());
        let digest = |name: &str| {
            let all = events.iter().chain(&of_instance(None)).cloned().collect::<Vec<_>>();
            all.iter().find(|event| event.name == name).unwrap().digest().to_string()
        };
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
