//! SEV-SNP reports: a real one, and ones signed by the chip of a chain minted by `snp/mint.sh`.
//!
//! The real report, its chip's certificate and AMD's signing key come from the test data of the `sev` crate
//! 8.0.0 (Apache-2.0).

use cloister_evidence::{Measurement, SnpTcb};
use cloister_verifier::{SnpChain, SnpPolicy, TrustRoot, VerifiedSnp, VerifyError};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair};

use crate::support::offline;

const MILAN: &[u8] = include_bytes!("snp/report_milan.bin");
const ARK: &[u8] = include_bytes!("snp/ark.der");
const ASK: &[u8] = include_bytes!("snp/ask.der");
const VCEK: &[u8] = include_bytes!("snp/vcek.der");
const VCEK_KEY: &[u8] = include_bytes!("snp/vcek.pkcs8.der");

const POLICY: usize = 0x08;
const VMPL: usize = 0x30;
const KEY_INFORMATION: usize = 0x48;
const REPORTED_TCB: usize = 0x180;
const CHIP_ID: usize = 0x1a0;
const SIGNATURE: usize = 0x2a0;

type Change = fn(&mut [u8]);

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn milan_chain() -> SnpChain {
    SnpChain {
        ask: include_bytes!("snp/ask_milan.der").to_vec(),
        vek: include_bytes!("snp/vcek_milan.der").to_vec(),
    }
}

fn chain() -> SnpChain {
    SnpChain { ask: ASK.to_vec(), vek: VCEK.to_vec() }
}

/// A report of the minted chip, after `change`, signed.
fn report(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut report = vec![0; 0x4a0];
    report[0] = 3;
    // What every policy has: bit 17 is always set, SMT is allowed.
    report[POLICY + 2] = 0b11;
    report[0x34] = 1;
    report[0x50..0x90].fill(7);
    report[0x90..0xc0].copy_from_slice(Measurement::of("launch").as_bytes());
    report[0xc0..0xe0].fill(9);
    report[REPORTED_TCB..REPORTED_TCB + 8].copy_from_slice(&[3, 0, 0, 0, 0, 0, 8, 0xd1]);
    report[0x188..0x18b].copy_from_slice(&[0x19, 1, 1]);
    for (place, number) in report[CHIP_ID..CHIP_ID + 64].iter_mut().zip(1..) {
        *place = number;
    }
    change(&mut report);
    sign(&mut report);
    report
}

fn sign(report: &mut [u8]) {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, VCEK_KEY, &random).unwrap();
    let signature = key.sign(&random, &report[..SIGNATURE]).unwrap();
    let (r, s) = signature.as_ref().split_at(48);
    for (number, place) in [(r, SIGNATURE), (s, SIGNATURE + 72)] {
        for (to, from) in report[place..].iter_mut().zip(number.iter().rev()) {
            *to = *from;
        }
    }
}

fn verify(report: &[u8], chain: &SnpChain) -> Result<VerifiedSnp, VerifyError> {
    offline(Some(ARK)).snp(report, chain, time("2030-01-01T00:00:00Z"))
}

#[test]
fn a_real_report() {
    let verifier = offline(None);
    let now = time("2026-11-21T00:00:00Z");
    let proven = verifier.snp(MILAN, &milan_chain(), now).unwrap();
    assert_eq!(proven.trust_root, TrustRoot::AmdArkMilan);
    let tcb = SnpTcb { fmc: None, bootloader: 3, tee: 0, snp: 8, microcode: 0x73 };
    assert_eq!(proven.reported_tcb, tcb);
    assert!(proven.chip_id.is_some() && proven.device_id.is_some());

    // The chip's certificate ends in 2030 and began in 2023.
    for bad in ["2030-04-04T00:00:00Z", "2023-04-03T00:00:00Z", "2019-01-01T00:00:00Z"] {
        let error = verifier.snp(MILAN, &milan_chain(), time(bad)).unwrap_err();
        assert!(error.to_string().contains("not valid at this time"), "{bad}: {error}");
    }
    for place in (0..SIGNATURE).chain(SIGNATURE..SIGNATURE + 144).step_by(13) {
        let mut damaged = MILAN.to_vec();
        damaged[place] ^= 1;
        assert!(verifier.snp(&damaged, &milan_chain(), now).is_err(), "byte {place}");
    }
    assert!(verifier.snp(&report(|_| ()), &milan_chain(), now).is_err());
}

#[test]
fn a_report_and_its_claims() {
    let proven = verify(&report(|_| ()), &chain()).unwrap();
    assert_eq!(proven.trust_root, TrustRoot::Development);
    assert_eq!(proven.measurement, Measurement::of("launch"));
    assert_eq!((proven.report_data, proven.host_data), ([7; 64], [9; 32]));
    assert_eq!(proven.chip_id.map(|id| id[0]), Some(1));
    let masked = verify(&report(|report| report[CHIP_ID..CHIP_ID + 64].fill(0)), &chain()).unwrap();
    assert_eq!((masked.chip_id, masked.device_id), (None, None));
    // Without the test's root nobody vouches.
    let now = time("2030-01-01T00:00:00Z");
    assert_eq!(offline(None).snp(&report(|_| ()), &chain(), now).unwrap_err(), VerifyError::UnknownRoot);
}

#[test]
fn machines_that_are_not_protected() {
    let debug = verify(&report(|report| report[POLICY + 2] |= 1 << 3), &chain());
    assert_eq!(debug.unwrap_err(), VerifyError::Debug);
    let cases: &[(&str, Change)] = &[
        ("migration agent", |report| report[POLICY + 2] |= 1 << 2),
        ("host asked", |report| report[VMPL..VMPL + 4].fill(0xff)),
        ("other firmware", |report| report[REPORTED_TCB] = 2),
        ("other firmware", |report| report[REPORTED_TCB + 7] = 0xd0),
        ("another chip", |report| report[CHIP_ID] ^= 1),
        ("kind of key", |report| report[KEY_INFORMATION] = 1 << 2),
    ];
    for (reason, change) in cases {
        let error = verify(&report(change), &chain()).unwrap_err();
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert!(!error.is_malformed());
    }
}

#[test]
fn chains_that_do_not_hold() {
    let good = report(|_| ());
    let with = |ask: &[u8], vek: &[u8]| verify(&good, &SnpChain { ask: ask.to_vec(), vek: vek.to_vec() });
    let milan = milan_chain();
    assert!(with(&milan.ask, VCEK).unwrap_err().to_string().contains("does not vouch"));
    assert!(with(ASK, &milan.vek).unwrap_err().to_string().contains("does not vouch"));
    assert_eq!(with(VCEK, VCEK).unwrap_err(), VerifyError::UnknownRoot);
    // The root in the signing key's place, and the signing key in the chip's.
    assert!(with(ARK, ASK).unwrap_err().to_string().contains("used for what it was not issued for"));
    for (ask, vek) in [(&b""[..], VCEK), (ASK, b""), (ASK, &[VCEK, &[0]].concat()), (&[0x30; 9000], VCEK)] {
        assert!(with(ask, vek).unwrap_err().is_malformed());
    }
    for place in (0..ASK.len()).step_by(17) {
        let mut damaged = ASK.to_vec();
        damaged[place] ^= 1;
        assert!(with(&damaged, VCEK).is_err(), "byte {place}");
    }
}

#[test]
fn no_changed_byte_passes() {
    let good = report(|_| ());
    let verifier = offline(Some(ARK));
    let (chain, now) = (chain(), time("2030-01-01T00:00:00Z"));
    for place in 0..good.len() {
        let mut damaged = good.clone();
        damaged[place] ^= 1 << (place % 8);
        assert!(verifier.snp(&damaged, &chain, now).is_err(), "byte {place}");
    }
    for length in 0..good.len() {
        assert!(verifier.snp(&good[..length], &chain, now).unwrap_err().is_malformed());
    }
    assert!(verifier.snp(&[good, vec![0]].concat(), &chain, now).unwrap_err().is_malformed());
}

#[test]
fn policies() {
    let proven = verify(&report(|_| ()), &chain()).unwrap();
    let exact = SnpTcb { fmc: None, bootloader: 3, tee: 0, snp: 8, microcode: 0xd1 };
    let good = SnpPolicy {
        minimum_tcb: Some(exact),
        vmpl: Some(0),
        measurement: Some(Measurement::of("launch")),
        host_data: Some([9; 32]),
        report_data: Some([7; 64]),
        production: false,
    };
    good.check(&proven).unwrap();
    SnpPolicy::default().check(&proven).unwrap();
    let bad = SnpPolicy {
        minimum_tcb: Some(SnpTcb { fmc: Some(1), bootloader: 4, tee: 0, snp: 9, microcode: 0xd2 }),
        vmpl: Some(0),
        measurement: Some(Measurement::ZERO),
        host_data: Some([0; 32]),
        report_data: Some([0; 64]),
        production: true,
    };
    let lower = verify(&report(|report| report[VMPL] = 2), &chain()).unwrap();
    let violations = bad.check(&lower).unwrap_err();
    let lines: Vec<_> = violations.as_slice().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
