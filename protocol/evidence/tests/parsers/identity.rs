//! Aggregates and MRCONFIGID.

use cloister_app_compose::{AppId, ComposeHash};
use cloister_evidence::{
    Aggregates, AppInfo, EventLog, ExpectedConfig, KeyProviderKind, LaunchIdentity, Measurement, MrConfig,
    MrConfigIdError, Quote, check_mr_config_id, device_id, mr_config_id_v1, mr_config_id_v2, mr_config_id_v3,
};

use crate::support::published;

const KEY_PROVIDER: &str = "3059301306072a8648ce3d020106082a8648ce3d030107034200046ff03b949241ce1dadd43519e6960e0a85b41a69a05c328103aa2bce1594ca163c4f753a55bf01dc53f6c0b0c7eee78b40c6ff7d25a96e2282b989cef71c144a";

fn compose_hash() -> ComposeHash {
    "6f809b3214eb9a69571ad008289d9551fa9a4272ffa8f7ad7440e5177d2fec85".parse().unwrap()
}

fn app_id() -> AppId {
    AppId::from_compose_hash(&compose_hash())
}

#[test]
fn registers_name_the_application() {
    let zeros = "00".repeat(15);
    assert_eq!(
        mr_config_id_v1(&compose_hash()).to_string(),
        format!("016f809b3214eb9a69571ad008289d9551fa9a4272ffa8f7ad7440e5177d2fec85{zeros}")
    );
    let id = hex::decode(KEY_PROVIDER).unwrap();
    assert_eq!(
        mr_config_id_v2(&compose_hash(), &app_id(), KeyProviderKind::Kms, &id).to_string(),
        format!("02c1dbbbcb2458ecf43ffa7411b4c843e310a45342f313f5ac69f65c1531992c29{zeros}")
    );
}

#[test]
fn a_register_is_checked_by_its_version() {
    let (compose_hash, app_id) = (compose_hash(), app_id());
    let id = hex::decode(KEY_PROVIDER).unwrap();
    let document = MrConfig {
        app_id: Some(app_id),
        compose_hash,
        gpu_policy_hash: None,
        init_script_hashes: None,
        instance_id: None,
        key_provider: "kms".to_owned(),
        key_provider_id: Some(KEY_PROVIDER.to_owned()),
        version: 3,
    }
    .to_json();
    let expected = ExpectedConfig {
        compose_hash: &compose_hash,
        app_id: &app_id,
        key_provider: Some((KeyProviderKind::Kms, &id)),
        document: Some(&document),
    };
    let versions = [
        Measurement::ZERO,
        mr_config_id_v1(&compose_hash),
        mr_config_id_v2(&compose_hash, &app_id, KeyProviderKind::Kms, &id),
        mr_config_id_v3(&document),
    ];
    for register in versions {
        assert_eq!(check_mr_config_id(&register, &expected), Ok(()));
    }
    let other = ComposeHash::of(b"another");
    let wrong = ExpectedConfig { compose_hash: &other, ..expected };
    for register in &versions[1..] {
        assert_eq!(check_mr_config_id(register, &wrong), Err(MrConfigIdError::Mismatch));
        for index in 1..48 {
            let mut damaged = *register.as_bytes();
            damaged[index] ^= 1;
            let damaged = Measurement::from_bytes(damaged);
            assert_eq!(check_mr_config_id(&damaged, &expected), Err(MrConfigIdError::Mismatch));
        }
    }
    let version_4 = Measurement::from_bytes([4; 48]);
    assert_eq!(check_mr_config_id(&version_4, &expected), Err(MrConfigIdError::Version(4)));
    let undocumented = ExpectedConfig { document: None, key_provider: None, ..expected };
    assert_eq!(check_mr_config_id(&versions[3], &undocumented), Err(MrConfigIdError::NoDocument));
    assert_eq!(check_mr_config_id(&versions[2], &undocumented), Err(MrConfigIdError::Mismatch));
}

#[test]
fn a_document_has_one_form() {
    let canonical = format!(r#"{{"compose_hash":"{}","key_provider":"none","version":3}}"#, compose_hash());
    MrConfig::parse(&canonical).unwrap();
    for other in [
        canonical.replace(':', ": "),
        canonical.replace(":3", ":2"),
        canonical.replace("\"version\"", "\"extra\":1,\"version\""),
        canonical.replace("6f80", "6F80"),
        canonical.replace(r#","key_provider":"none""#, ""),
        format!(r#"{{"version":3,"compose_hash":"{}","key_provider":"none"}}"#, compose_hash()),
        String::new(),
    ] {
        assert_eq!(MrConfig::parse(&other), Err(MrConfigIdError::Document), "{other}");
    }
}

#[test]
fn aggregates_of_nothing_but_zeros_leave_the_launch_out() {
    let zero = Measurement::ZERO;
    let registers =
        cloister_evidence::Registers { mrtd: zero, rtmr0: zero, rtmr1: zero, rtmr2: zero, rtmr3: zero };
    let none = Aggregates::new(&registers, &LaunchIdentity::NONE, None);
    let owner = LaunchIdentity { owner: Measurement::from_bytes([1; 48]), ..LaunchIdentity::NONE };
    let with_owner = Aggregates::new(&registers, &owner, None);
    assert_eq!(none.mr_key_provider, [0; 32]);
    assert_eq!(none.mr_system, with_owner.mr_system);
    assert_ne!(none.mr_aggregated, with_owner.mr_aggregated);
}

#[test]
fn published_aggregates() {
    for (quote, mr_aggregated, mr_system) in [
        (
            "dstack/getquote_v0_5.json",
            "233c659f83048505bb1ef7f105245aa80f5d04e3d096c329da272d7ee13fbf38",
            "e1ae776a1492d4f87937b7e563d265c16300be4aba5d748207587023bb7dbb75",
        ),
        (
            "dstack/getquote_v0_6_stripped.json",
            "c758fa624b62536ca77504c4c52745e70880220a178a615a859c52f8b101d2ee",
            "118f754a080ecb8527df65656ee4e7e97b891cf488ad6a38886ff0dbca0c8f70",
        ),
        (
            "minted/quote_v4.bin",
            "1f5e6459b0d9635f23ced6e0286e328875a23cb23433e8462bf1b266f8e082fb",
            "d00a4dcbb9e4821f432b702535b7655ed7871877bf2269ab55c53f98ad560efa",
        ),
    ] {
        let Some(bytes) = published(quote) else { return };
        let (bytes, log) = if quote.starts_with("dstack/") {
            let response: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let text = |name: &str| response[name].as_str().unwrap().to_owned();
            (hex::decode(text("quote")).unwrap(), text("event_log"))
        } else {
            (bytes, String::from_utf8(published("minted/event_log.json").unwrap()).unwrap())
        };
        let log = EventLog::parse(&log).unwrap();
        let quote = Quote::parse(&bytes).unwrap();
        let report = quote.td_report().unwrap();
        let info = AppInfo::from_event_log(&log).unwrap();
        let key_provider = info.key_provider_payload.as_deref();
        let launch = report.launch_identity();
        let aggregates = Aggregates::new(&report.registers(), &launch, key_provider);
        assert_eq!(hex::encode(aggregates.mr_aggregated), mr_aggregated);
        assert_eq!(hex::encode(aggregates.mr_system), mr_system);
        let expected = ExpectedConfig {
            compose_hash: &info.compose_hash.unwrap(),
            app_id: &info.app_id.unwrap(),
            key_provider: None,
            document: None,
        };
        assert_eq!(check_mr_config_id(&report.mrconfigid, &expected), Ok(()));
        // At boot, as a key provider sees it: the same log cut behind boot-mr-done.
        let done = log.entries().iter().position(|entry| entry.event == "boot-mr-done").unwrap();
        let [.., cut] = EventLog::new(log.entries()[..=done].to_vec()).replay().unwrap();
        assert_eq!(log.rtmr3_at_boot().unwrap(), cut);
        assert_ne!(cut, report.rtmr3);
    }
    let ppid = hex::decode("c1015ed0c1015ed0c1015ed0c1015ed0").unwrap();
    assert_eq!(
        hex::encode(device_id(&ppid)),
        "a309e617409dfb6766860e295eee46054c784bbbb92aa27091414c6654f57d0d"
    );
}
