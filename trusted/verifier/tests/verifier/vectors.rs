//! The published vectors give the documented verdicts at the documented times, and no other second before
//! or after their windows.

use cloister_verifier::{Tee, TrustRoot, Verifier, VerifyError};

use crate::support::{at, offline, read, read_collateral, read_quote, testdata};

/// Status and advisories, or a part of the reason.
type Expected = Result<(&'static str, &'static [&'static str]), &'static str>;

struct Row {
    quote: &'static str,
    collateral: &'static str,
    now: i64,
    expected: Expected,
}

const fn row(quote: &'static str, collateral: &'static str, now: i64, expected: Expected) -> Row {
    Row { quote, collateral, now, expected }
}

const TD10: &str = "dcap/tdx_v4_td10.bin";
const TD10_COLLATERAL: &str = "dcap/tdx_v4_td10.collateral.json";
const B0C06F: &str = "dcap/tdx_fmspc_b0c06f_2026-10.collateral.json";
const C90C06F: &str = "dcap/tdx_fmspc_90c06f_2026-02.collateral.json";
const SGX: &str = "dcap/sgx_v3.bin";
const SGX_COLLATERAL: &str = "dcap/sgx_v3.collateral.json";
const TD15EX: &str = "dcap/tdx_v5_td15ex.bin";
const TD15EX_COLLATERAL: &str = "dcap/tdx_v5_td15ex.collateral.json";
const NO_LEVEL: Expected = Err("No matching TCB level");
const UP_TO_DATE: Expected = Ok(("UpToDate", &[]));
const SGX_STATUS: Expected = Ok(("ConfigurationAndSWHardeningNeeded", &["INTEL-SA-00289", "INTEL-SA-00615"]));
const OUT_OF_DATE: Expected =
    Ok(("OutOfDate", &["INTEL-SA-01192", "INTEL-SA-01245", "INTEL-SA-01312", "INTEL-SA-01313"]));

const INTEL: &[Row] = &[
    row(SGX, SGX_COLLATERAL, 1_751_624_924, SGX_STATUS),
    row(TD10, TD10_COLLATERAL, 1_751_624_191, UP_TO_DATE),
    row(TD10, B0C06F, 1_792_714_008, OUT_OF_DATE),
    row(TD15EX, TD15EX_COLLATERAL, 1_792_714_008, UP_TO_DATE),
    row("dcap/tdx_v5_td15_nolevel.bin", C90C06F, 1_772_707_803, NO_LEVEL),
    row("dcap/tdx_v4_old_a.hex", TD10_COLLATERAL, 1_751_624_191, NO_LEVEL),
    row("dcap/tdx_v4_old_b.hex", TD10_COLLATERAL, 1_751_624_191, NO_LEVEL),
    row(TD10, TD15EX_COLLATERAL, 1_792_714_008, Err("Signature is invalid for qe_report")),
    row(TD10, C90C06F, 1_772_707_803, Err("Fmspc mismatch")),
    row(TD10, SGX_COLLATERAL, 1_751_624_924, Err("QE Identity id/version")),
    // The edges of the documented windows.
    row(TD10, TD10_COLLATERAL, 1_750_329_146, Err("QE Identity issue date is in the future")),
    row(TD10, TD10_COLLATERAL, 1_750_329_147, UP_TO_DATE),
    row(TD10, TD10_COLLATERAL, 1_752_919_234, UP_TO_DATE),
    row(TD10, TD10_COLLATERAL, 1_752_919_235, Err("CrlExpired")),
    row(SGX, SGX_COLLATERAL, 1_750_330_571, SGX_STATUS),
    row(SGX, SGX_COLLATERAL, 1_752_919_278, SGX_STATUS),
    row(SGX, SGX_COLLATERAL, 1_752_919_279, Err("QE Identity expired")),
    row(TD10, B0C06F, 1_791_418_186, OUT_OF_DATE),
    row(TD10, B0C06F, 1_794_008_711, OUT_OF_DATE),
    row("dstack/simulator_quote.bin", B0C06F, 1_792_714_008, UP_TO_DATE),
];

fn check(verifier: &Verifier, rows: &[Row], root: TrustRoot) {
    for Row { quote, collateral, now, expected } in rows {
        let (Some(bytes), Some(with)) = (read_quote(quote), read_collateral(collateral)) else { return };
        let verdict = verifier.quote_with(&bytes, &with, at(*now));
        let name = format!("{quote} with {collateral} at {now}");
        match (verdict, expected) {
            (Ok(proven), Ok((status, advisories))) => {
                assert_eq!(proven.tcb_status.as_str(), *status, "{name}");
                assert_eq!(proven.advisory_ids, *advisories, "{name}");
                assert_eq!(proven.trust_root, root, "{name}");
                assert_eq!(proven.verified_at, at(*now), "{name}");
                assert!(at(*now) <= proven.valid_until, "{name}");
            }
            (Err(error), Err(reason)) => {
                assert!(error.to_string().contains(reason), "{name}: {error}");
                assert!(!error.is_malformed() && !error.is_temporary(), "{name}: {error:?}");
            }
            (verdict, expected) => panic!("{name}: {verdict:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn evidence_of_intels_platforms() {
    check(&offline(None), INTEL, TrustRoot::IntelSgxRootCa);
}

#[test]
fn evidence_of_a_root_of_our_own() {
    const NOW: i64 = 1_795_000_000;
    const UP: &str = "minted/collateral_uptodate.json";
    const V4: &str = "minted/quote_v4.bin";
    const HARDENING: Expected = Ok(("SWHardeningNeeded", &["INTEL-SA-00000"]));
    const OLD: Expected = Ok(("OutOfDate", &["INTEL-SA-00001", "INTEL-SA-00002"]));
    let rows = &[
        row(V4, UP, NOW, UP_TO_DATE),
        row(V4, UP, 1_767_225_600, UP_TO_DATE),
        row(V4, UP, 1_767_225_599, Err("in the future")),
        row(V4, UP, 2_398_377_599, UP_TO_DATE),
        row(V4, UP, 2_398_377_600, Err("CrlExpired")),
        row("minted/quote_v5_td10body.bin", UP, NOW, UP_TO_DATE),
        row(V4, "minted/collateral_swhardening.json", NOW, HARDENING),
        row(V4, "minted/collateral_outofdate.json", NOW, OLD),
        row(V4, "minted/collateral_revoked.json", NOW, Err("Revoked")),
        row(V4, "minted/collateral_pck_revoked.json", NOW, Err("CertRevoked")),
        row(V4, "minted/collateral_bad_signature.json", NOW, Err("Signature is invalid for tcb_info")),
        row("minted/quote_v4_debug.bin", UP, NOW, Err("debug mode")),
        row("minted/quote_v4_no_septve.bin", UP, NOW, Err("SEPT_VE_DISABLE")),
        row("minted/quote_v4_tampered.bin", UP, NOW, Err("report signature is invalid")),
    ];
    let Some(root) = read("minted/root_ca.der") else { return };
    check(&offline(Some(&root)), rows, TrustRoot::Development);

    let (quote, collateral) = (read_quote(V4).unwrap(), read_collateral(UP).unwrap());
    let vendors_only = offline(None).quote_with(&quote, &collateral, at(NOW));
    assert_eq!(vendors_only.unwrap_err(), VerifyError::UnknownRoot);
    let intels = read_collateral(TD10_COLLATERAL).unwrap();
    offline(Some(&root)).quote_with(&quote, &intels, at(1_751_624_191)).unwrap_err();
}

#[test]
fn the_claims_are_those_of_the_machine() {
    let Some(root) = read("minted/root_ca.der") else { return };
    let quote = read_quote("minted/quote_v4.bin").unwrap();
    let collateral = read_collateral("minted/collateral_uptodate.json").unwrap();
    let proven = offline(Some(&root)).quote_with(&quote, &collateral, at(1_795_000_000)).unwrap();
    assert_eq!((proven.tee, proven.version), (Tee::Tdx, 4));
    assert_eq!(hex::encode(proven.ppid), "c1015ed0c1015ed0c1015ed0c1015ed0");
    assert_eq!(
        hex::encode(proven.device_id),
        "a309e617409dfb6766860e295eee46054c784bbbb92aa27091414c6654f57d0d"
    );
    assert_eq!(hex::encode(proven.fmspc), "c0ffee000000");
    let registers = proven.registers.unwrap();
    assert_eq!(registers.mrtd, cloister_evidence::Measurement::of("cloister-test/mrtd"));
    let log = String::from_utf8(read("minted/event_log.json").unwrap()).unwrap();
    let log = cloister_evidence::EventLog::parse(&log).unwrap();
    assert_eq!(log.builds(&registers).unwrap(), [true; 4]);
    assert_eq!(proven.mr_config_id.as_bytes()[0], 1);
    assert_eq!(
        hex::encode(proven.report_data),
        "e8311c6a639ba8252a1548c81d63538340c5f277094a430f898d97603d8cc93c962d555241df8314a7c8c2579d4cab3cedb81fba30a7e31f2e3a1a60720a62ee"
    );

    for (quote, collateral, now, ppid, fmspc) in [
        (TD10, TD10_COLLATERAL, 1_751_624_191, "811dca2a26b952e85bb6448b097ba4fd", "b0c06f000000"),
        (TD15EX, TD15EX_COLLATERAL, 1_792_714_008, "d6fbe62fefe590c45a33afa4adaad111", "b0c06f000000"),
        (SGX, SGX_COLLATERAL, 1_751_624_924, "d04ec06d4e6d92dc90d0ad3cf5ee2ddf", "00a067110000"),
        (
            "dstack/simulator_quote.bin",
            B0C06F,
            1_792_714_008,
            "80d4a149124353c7a2bb76551603f31b",
            "b0c06f000000",
        ),
    ] {
        let proven = offline(None)
            .quote_with(&read_quote(quote).unwrap(), &read_collateral(collateral).unwrap(), at(now))
            .unwrap();
        assert_eq!((hex::encode(proven.ppid).as_str(), hex::encode(proven.fmspc).as_str()), (ppid, fmspc));
        assert_eq!(proven.enclave.is_some(), quote == SGX);
        assert_eq!(proven.registers.is_none(), quote == SGX);
    }
}

#[test]
fn evidence_of_the_public_guest_platform() {
    let Some(dir) = testdata() else { return };
    let response = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(dir.join("dstack").join(name)).unwrap()).unwrap()
    };
    let collateral = read_collateral(C90C06F).unwrap();
    let quote_of = |response: &serde_json::Value| hex::decode(response["quote"].as_str().unwrap()).unwrap();

    let old = response("getquote_v0_5.json");
    let proven = offline(None).quote_with(&quote_of(&old), &collateral, at(1_772_707_803)).unwrap();
    assert_eq!(proven.tcb_status.as_str(), "UpToDate");
    assert_eq!(hex::encode(proven.ppid), "897d3eb76ea887b783f9ad3d0771034b");
    let log = cloister_evidence::EventLog::parse(old["event_log"].as_str().unwrap()).unwrap();
    assert_eq!(log.builds(&proven.registers.unwrap()).unwrap(), [true; 4]);

    // Nobody kept collateral for this one's time: too early the platform's certificate is not valid, later
    // the collateral has expired.
    let new = quote_of(&response("getquote_v0_6_stripped.json"));
    for (now, reason) in [(1_772_707_803, "CertNotValidYet"), (1_776_214_258, "CrlExpired")] {
        let error = offline(None).quote_with(&new, &collateral, at(now)).unwrap_err().to_string();
        assert!(error.contains(reason), "{now}: {error}");
    }
}
