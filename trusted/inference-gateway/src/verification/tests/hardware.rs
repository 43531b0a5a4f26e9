//! Real evidence of a public guest, where the test data is at hand: what of it is enough, and that an image never is.

use std::path::{Path, PathBuf};

use cloister_evidence::{AttestationDocument, Measurement, Quote};
use cloister_verifier::appraisal::{
    Connection, Evidence, Expectations, ExpectedRegisters, Nonce, appraise_with,
};
use cloister_verifier::{Clock, TrustRoots, Verifier};
use jiff::Timestamp;

use crate::verification::machine;
use crate::verification::target::Accepted;

/// The folder with the test data, if it is there.
fn testdata() -> Option<PathBuf> {
    let given = std::env::var_os("CLOISTER_TESTDATA").map(PathBuf::from);
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/testdata"));
    let path = given.unwrap_or(beside).join("tdx");
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("SKIPPED: no test data at {}; name it by CLOISTER_TESTDATA", path.display());
    None
}

/// Why the guest's machine is not accepted, for what it lacks.
fn refusal(document: &AttestationDocument, folder: &Path, accepted: &Accepted) -> String {
    let quote = document.quote.as_deref().unwrap();
    let bytes = hex::decode(quote).unwrap();
    let over = *Quote::parse(&bytes).unwrap().td_report().unwrap().reportdata;
    let at = Timestamp::from_second(1_772_707_803).unwrap();
    let collateral = std::fs::read(folder.join("dcap/tdx_fmspc_90c06f_2026-02.collateral.json")).unwrap();
    let collateral = serde_json::from_slice(&collateral).unwrap();
    let verifier = Verifier::offline(TrustRoots::vendors().in_production().unwrap(), Clock::fixed(at));
    let boot = machine::shown_boot(quote, accepted);
    let expectations = Expectations {
        nonce: Some(Nonce::Own(over)),
        production: true,
        registers: boot.unwrap_or_default(),
        ..Expectations::default()
    };
    let evidence = Evidence { document: document.clone(), connection: Connection::Terminated };
    let appraisal = appraise_with(&verifier, &evidence, &expectations, &collateral, at).appraisal;
    assert!(appraisal.hardware);
    machine::judge(&appraisal, boot, accepted).unwrap_err().to_string()
}

#[test]
fn nothing_but_its_registers_makes_a_boot_of_hardware_an_accepted_one() {
    const NOT_COMPARED: &str = "What the machine booted was not compared";
    let Some(folder) = testdata() else { return };
    let text = std::fs::read(folder.join("dstack/getquote_v0_5.json")).unwrap();
    let document: AttestationDocument = serde_json::from_slice(&text).unwrap();
    let bytes = hex::decode(document.quote.as_deref().unwrap()).unwrap();
    let shown = Quote::parse(&bytes).unwrap().td_report().unwrap().registers();
    let own = ExpectedRegisters {
        mrtd: Some(shown.mrtd),
        rtmr0: Some(shown.rtmr0),
        rtmr1: Some(shown.rtmr1),
        rtmr2: Some(shown.rtmr2),
    };
    let registers = |registers: &[ExpectedRegisters]| Accepted {
        boot_registers: registers.to_vec(),
        ..Accepted::default()
    };
    // The image that it says it booted, and any other.
    let vm_config: serde_json::Value = serde_json::from_str(&document.vm_config).unwrap();
    let hash = vm_config["os_image_hash"].as_str().unwrap_or_default().to_owned();
    let images = Accepted { os_image_hashes: vec![hash, "00".repeat(32)], ..Accepted::default() };
    let zero = Some(Measurement::ZERO);
    for accepted in [
        Accepted::default(),
        images,
        registers(&[ExpectedRegisters { mrtd: zero, ..own }]),
        registers(&[ExpectedRegisters { rtmr0: zero, ..own }]),
        registers(&[ExpectedRegisters { rtmr1: zero, ..own }]),
        registers(&[ExpectedRegisters { rtmr2: zero, ..own }]),
    ] {
        let reason = refusal(&document, &folder, &accepted);
        assert!(reason.contains(NOT_COMPARED), "{accepted:?}: {reason}");
    }
    // What is then missing is the compose document, which this guest does not show.
    let reason = refusal(&document, &folder, &registers(&[ExpectedRegisters { mrtd: zero, ..own }, own]));
    assert!(reason.contains("The compose document is not shown"), "{reason}");
}
