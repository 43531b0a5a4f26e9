//! Reports of AMD SEV-SNP.

use cloister_evidence::{InvalidSnpReport, SNP_REPORT_BYTES, SnpCpu, SnpReport, SnpTcb};
use proptest::prelude::*;

use crate::samples;
use crate::support::{every_flip_shows, every_truncation_fails};

#[test]
fn fields_stand_where_the_specification_puts_them() {
    let bytes = samples::snp(5, 0x19);
    let report = SnpReport::parse(&bytes).unwrap();
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(report.policy, u64_at(0x08));
    assert_eq!(report.family_id, &bytes[0x10..0x20]);
    assert_eq!(report.image_id, &bytes[0x20..0x30]);
    assert_eq!(report.vmpl.to_le_bytes(), bytes[0x30..0x34]);
    assert_eq!(report.platform_info, u64_at(0x40));
    assert_eq!(report.key_information.to_le_bytes(), bytes[0x48..0x4c]);
    assert_eq!(report.report_data, &bytes[0x50..0x90]);
    assert_eq!(report.measurement.as_bytes(), &bytes[0x90..0xC0]);
    assert_eq!(report.host_data, &bytes[0xC0..0xE0]);
    assert_eq!(report.id_key_digest.as_bytes(), &bytes[0xE0..0x110]);
    assert_eq!(report.author_key_digest.as_bytes(), &bytes[0x110..0x140]);
    assert_eq!(report.report_id, &bytes[0x140..0x160]);
    assert_eq!(report.report_id_ma, &bytes[0x160..0x180]);
    assert_eq!(report.chip_id, &bytes[0x1A0..0x1E0]);
    assert_eq!(report.mitigations, Some((u64_at(0x1F8), u64_at(0x200))));
    assert_eq!(report.signature_r, &bytes[0x2A0..0x2E8]);
    assert_eq!(report.signature_s, &bytes[0x2E8..0x330]);
    assert_eq!(report.signed(), &bytes[..0x2A0]);
    for (tcb, at) in [
        (report.current_tcb, 0x38),
        (report.reported_tcb, 0x180),
        (report.committed_tcb, 0x1E0),
        (report.launch_tcb, 0x1F0),
    ] {
        let part = |offset: usize| bytes[at + offset];
        let expected =
            SnpTcb { fmc: None, bootloader: part(0), tee: part(1), snp: part(6), microcode: part(7) };
        assert_eq!(tcb, expected);
    }
}

#[test]
fn later_versions_say_more() {
    let bytes = samples::snp(2, 0x1A);
    let report = SnpReport::parse(&bytes).unwrap();
    assert_eq!((report.cpu, report.mitigations, report.reported_tcb.fmc), (None, None, None));
    let bytes = samples::snp(3, 0x1A);
    let report = SnpReport::parse(&bytes).unwrap();
    assert_eq!(report.cpu, Some(SnpCpu { family: 0x1A, model: bytes[0x189], stepping: bytes[0x18A] }));
    assert_eq!(report.mitigations, None);
    let part = |offset: usize| bytes[0x180 + offset];
    assert_eq!(
        report.reported_tcb,
        SnpTcb { fmc: Some(part(0)), bootloader: part(1), tee: part(2), snp: part(3), microcode: part(7) }
    );
}

#[test]
fn debugging_is_a_bit_of_the_policy() {
    let mut bytes = samples::snp(3, 0x19);
    bytes[0x0A] &= !8;
    assert!(!SnpReport::parse(&bytes).unwrap().is_debug());
    bytes[0x0A] |= 8;
    assert!(SnpReport::parse(&bytes).unwrap().is_debug());
}

#[test]
fn wrong_reports_are_refused() {
    let with = |at: usize, value: u8| {
        let mut bytes = samples::snp(2, 0);
        bytes[at] = value;
        SnpReport::parse(&bytes).map(|_| ())
    };
    assert_eq!(with(0, 1), Err(InvalidSnpReport::Version(1)));
    assert_eq!(with(0, 6), Err(InvalidSnpReport::Version(6)));
    assert_eq!(with(0x34, 0), Err(InvalidSnpReport::SignatureAlgorithm(0)));
    for reserved in [0x2A0 + 48, 0x2A0 + 72 + 71, 0x2A0 + 144, 1183] {
        assert_eq!(with(reserved, 1), Err(InvalidSnpReport::Signature));
    }
    let mut long = samples::snp(2, 0);
    long.push(0);
    assert_eq!(SnpReport::parse(&long), Err(InvalidSnpReport::Length));
}

#[test]
fn damage_shows() {
    let bytes = samples::snp(5, 0x1A);
    every_flip_shows(&bytes, |bytes| {
        SnpReport::parse(bytes)
            .ok()
            .map(|report| (*report.signed(), *report.signature_r, *report.signature_s))
    });
    every_truncation_fails(&bytes, |bytes| SnpReport::parse(bytes).ok().map(|report| report.version));
}

proptest! {
    #[test]
    fn anything_parses_or_is_refused(mut bytes in proptest::collection::vec(any::<u8>(), SNP_REPORT_BYTES), version in 1..7_u32) {
        let _ = SnpReport::parse(&bytes);
        bytes[..4].copy_from_slice(&version.to_le_bytes());
        bytes[0x34..0x38].copy_from_slice(&1_u32.to_le_bytes());
        bytes[0x2A0 + 48..0x2A0 + 72].fill(0);
        bytes[0x2E8 + 48..].fill(0);
        prop_assert_eq!(SnpReport::parse(&bytes).is_ok(), (2..=5).contains(&version));
    }
}
