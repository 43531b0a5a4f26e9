//! Seeds of the fuzz targets: the samples, so that a plain clone fuzzes from valid inputs.

use std::path::Path;

use cloister_evidence::{PlatformEvidence, VersionedAttestation};

use crate::samples;

#[test]
fn seeds_are_the_samples() {
    let log = |entries: Vec<_>| serde_json::to_vec(&entries).unwrap();
    let nitro = samples::nitro(samples::nitro_members());
    let with = |evidence| VersionedAttestation { evidence, ..samples::attestation() }.encode().unwrap();
    let seeds = [
        ("quote/sgx_v3", samples::quote(3, 0, None)),
        ("quote/tdx_v4", samples::quote(4, 0x81, None)),
        ("quote/tdx_v5", samples::quote(5, 0x81, Some(4))),
        ("boot_log/launch", samples::boot_log()),
        ("event_log/v1", log(samples::event_log())),
        ("event_log/v2", log(samples::runtime_events().iter().map(samples::entry_v2).collect())),
        ("machine/vm_config", serde_json::to_vec(&samples::vm_config()).unwrap()),
        ("machine/mr_config", samples::mr_config().into_bytes()),
        ("nitro/tagged", nitro.clone()),
        ("snp/v2", samples::snp(2, 0)),
        ("snp/v5", samples::snp(5, 0x1A)),
        ("versioned_attestation/tdx", samples::attestation().encode().unwrap()),
        ("versioned_attestation/nitro", with(PlatformEvidence::NitroEnclave { document: nitro })),
        (
            "versioned_attestation/snp",
            with(PlatformEvidence::SevSnp {
                report: samples::snp(3, 0x19),
                certificates: vec![vec![1; 8], vec![2; 8]],
                mr_config: "{}".to_owned(),
            }),
        ),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, bytes) in seeds {
        let path = folder.join(name);
        if std::env::var_os("UPDATE_SEEDS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(
            std::fs::read(&path).is_ok_and(|seed| seed == bytes),
            "{} is not the sample; run this test with UPDATE_SEEDS=1",
            path.display()
        );
    }
}
