//! What the node accepts as a VM, whoever sends it.

use std::collections::HashSet;
use std::hash::Hash;

use cloister_guest_channel::config_disk::{
    MAX_APP_COMPOSE_BYTES, MAX_ENCRYPTED_ENV_BYTES, MAX_USER_CONFIG_BYTES,
};
use cloister_node_api::VmSpec;

use crate::error::VmError;
use crate::gpus::PciAddress;
use crate::host::Need;

const MAX_VCPU: u32 = 256;
const MEMORY_MB: std::ops::RangeInclusive<u32> = 128..=4 * 1024 * 1024;
const MAX_DISK_GB: u32 = 64 * 1024;
const MAX_NAME_BYTES: usize = 256;
const MAX_KMS_URLS: usize = 16;
const MAX_URL_BYTES: usize = 1024;
const MAX_GPUS: usize = 16;
const MAX_PORTS: usize = 64;
/// Longest label of a host name.
const MAX_LABEL: usize = 63;

/// Refuses a specification that no host could run.
pub(super) fn check(spec: &VmSpec) -> Result<(), VmError> {
    let bytes = |text: &Option<String>| text.as_ref().map_or(0, |text| text.len() as u64);
    let rules = [
        ((1..=MAX_VCPU).contains(&spec.vcpu), "a CVM has 1 to 256 virtual CPUs"),
        (MEMORY_MB.contains(&spec.memory_mb), "a CVM has 128 MiB to 4 TiB of memory"),
        ((1..=MAX_DISK_GB).contains(&spec.disk_gb), "a CVM's disk has 1 GiB to 64 TiB"),
        (spec.name.len() <= MAX_NAME_BYTES, "a CVM's name has at most 256 bytes"),
        (spec.app_compose.len() as u64 <= MAX_APP_COMPOSE_BYTES, "the compose document is too long"),
        (bytes(&spec.encrypted_env) <= 2 * MAX_ENCRYPTED_ENV_BYTES + 2, "the sealed environment is too long"),
        (bytes(&spec.user_config) <= MAX_USER_CONFIG_BYTES, "the user configuration is too long"),
        (spec.kms_urls.len() <= MAX_KMS_URLS, "a CVM has at most 16 addresses of its KMS"),
        (
            spec.kms_urls.iter().all(|url| url.len() <= MAX_URL_BYTES),
            "an address of a KMS has at most 1024 bytes",
        ),
        (spec.gpus.len() <= MAX_GPUS, "a CVM has at most 16 GPUs"),
        (distinct(&spec.gpus), "a CVM has a GPU once"),
        (spec.ports.len() <= MAX_PORTS, "a CVM has at most 64 mapped ports"),
        (
            distinct(spec.ports.iter().map(|port| (port.protocol, port.host_port))),
            "a port of the host leads to one port of the CVM",
        ),
        (spec.ports.iter().all(|port| port.vm_port != 0), "ports of a CVM are 1 to 65535"),
    ];
    if let Some((_, rule)) = rules.iter().find(|(holds, _)| !holds) {
        return Err(VmError::Invalid((*rule).to_owned()));
    }
    need(spec)?;
    spec.encrypted_env.as_deref().map(decode_env).transpose().map(|_| ())
}

fn distinct<T: Eq + Hash>(items: impl IntoIterator<Item = T>) -> bool {
    let mut seen = HashSet::new();
    items.into_iter().all(|item| seen.insert(item))
}

/// What a VM of this specification has to itself while it runs.
pub(super) fn need(spec: &VmSpec) -> Result<Need, VmError> {
    let address = |slot: &String| {
        slot.parse::<PciAddress>()
            .map_err(|error| VmError::Invalid(format!("a GPU is named wrongly: {error}")))
    };
    Ok(Need { memory_mb: spec.memory_mb, gpus: spec.gpus.iter().map(address).collect::<Result<_, _>>()? })
}

/// Bytes of a sealed environment in hex, with or without `0x`.
pub(super) fn decode_env(text: &str) -> Result<Vec<u8>, VmError> {
    hex::decode(text.strip_prefix("0x").unwrap_or(text))
        .map_err(|_| VmError::Invalid("the sealed environment must be hex".to_owned()))
}

/// A host name made of a free name: a DNS label, `cvm` when nothing of the name can be used.
pub(super) fn hostname(name: &str) -> String {
    let label: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(MAX_LABEL)
        .collect();
    match label.trim_matches('-') {
        "" => "cvm".to_owned(),
        label => label.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn host_names_are_labels(name in any::<String>()) {
            let label = hostname(&name);
            prop_assert!((1..=MAX_LABEL).contains(&label.len()));
            prop_assert!(label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            prop_assert!(!label.starts_with('-') && !label.ends_with('-'));
        }
    }

    #[test]
    fn host_names_resemble_the_name() {
        assert_eq!(hostname("My App_1"), "my-app-1");
        assert_eq!(hostname("…"), "cvm");
    }
}
