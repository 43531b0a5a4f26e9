//! Real evidence of public guests, where the test data is at hand.

use std::path::PathBuf;

use cloister_evidence::{AttestationDocument, PlatformEvidence, VersionedAttestation};
use jiff::Timestamp;

use super::walk::lines;
use crate::appraisal::{
    Appraisal, ClaimId, Connection, Evidence, Expectations, ExpectedCompose, ExpectedRegisters, Outcome,
    appraise_with,
};
use crate::{Clock, TrustRoots, Verifier};

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

fn appraise(document: &str, expectations: &Expectations) -> Option<Appraisal> {
    let testdata = testdata()?;
    let read = |name: &str| std::fs::read_to_string(testdata.join(name)).unwrap();
    let document: AttestationDocument = serde_json::from_str(&read(document)).unwrap();
    let collateral = serde_json::from_str(&read("dcap/tdx_fmspc_90c06f_2026-02.collateral.json")).unwrap();
    let at = Timestamp::from_second(1_772_707_803).unwrap();
    let verifier = Verifier::offline(TrustRoots::vendors().in_production().unwrap(), Clock::fixed(at));
    let evidence = Evidence { document, connection: Connection::None };
    Some(appraise_with(&verifier, &evidence, expectations, &collateral, at).appraisal)
}

const DOCUMENT: &str = "dstack/getquote_v0_5.json";
const APP: &str = "3763bc34552cf3a27ff71ad5f7a90471562a1a2d";

#[test]
fn a_public_guest_is_judged_as_far_as_its_evidence_goes() {
    let Some(appraisal) = appraise(DOCUMENT, &Expectations::default()) else { return };
    // Genuine hardware, and nothing says what it should have booted.
    assert!(!appraisal.verified);
    assert!(appraisal.hardware);
    insta::assert_snapshot!(lines(&appraisal));
}

#[test]
fn a_public_guest_with_known_registers_is_verified() {
    let Some(unknown) = appraise(DOCUMENT, &Expectations::default()) else { return };
    let boot = unknown.claim(ClaimId::Boot).unwrap();
    let register = |name: &str| {
        boot.evidence.iter().find(|fact| fact.name == name).map(|fact| fact.value.parse().unwrap())
    };
    let expectations = Expectations {
        app_id: Some(APP.parse().unwrap()),
        registers: ExpectedRegisters {
            mrtd: register("MRTD"),
            rtmr0: register("RTMR0"),
            rtmr1: register("RTMR1"),
            rtmr2: register("RTMR2"),
        },
        production: true,
        ..Expectations::default()
    };
    let appraisal = appraise(DOCUMENT, &expectations).unwrap();
    assert!(appraisal.verified, "{}", lines(&appraisal));
    assert_eq!(appraisal.subject.unwrap().app_id, expectations.app_id);

    let other = Expectations { compose: Some(ExpectedCompose::Document(b"{}".to_vec())), ..expectations };
    let appraisal = appraise(DOCUMENT, &other).unwrap();
    assert_eq!(appraisal.claim(ClaimId::Compose).unwrap().outcome, Outcome::Fails);
}

#[test]
fn evidence_without_its_collateral_is_refused() {
    let Some(appraisal) = appraise("dstack/getquote_v0_6_stripped.json", &Expectations::default()) else {
        return;
    };
    assert!(!appraisal.verified);
    assert_eq!(appraisal.claim(ClaimId::Signature).unwrap().outcome, Outcome::Fails);
}

#[test]
fn a_nitro_enclave_is_judged_by_its_image() {
    use base64::Engine as _;
    let Some(testdata) = testdata() else { return };
    let at = Timestamp::from_millisecond(1_766_668_537_578).unwrap();
    let verifier = Verifier::offline(TrustRoots::vendors().in_production().unwrap(), Clock::fixed(at));
    let judge = |name: &str, expectations: &Expectations| {
        let bytes = std::fs::read(testdata.join("nitro").join(name)).unwrap();
        let document = AttestationDocument {
            document: Some(base64::prelude::BASE64_STANDARD.encode(bytes)),
            ..AttestationDocument::default()
        };
        let evidence = Evidence { document, connection: Connection::Terminated };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(crate::appraisal::appraise(&verifier, &evidence, expectations)).appraisal
    };
    let image = "e0e742bd62280472ea840647754203d599cb39a7966cfed11237c1e86de9c857".parse().unwrap();
    let expected = Expectations { os_image_hash: Some(image), production: true, ..Expectations::default() };
    let appraisal = judge("doc_a.cose", &expected);
    assert!(appraisal.verified && appraisal.hardware, "{}", lines(&appraisal));
    assert!(appraisal.claims.iter().map(|claim| claim.id).eq(ClaimId::ALL));
    insta::assert_snapshot!(lines(&appraisal));

    assert!(!judge("doc_a.cose", &Expectations::default()).verified, "an unknown image proves nothing");
    let app = Expectations { app_id: Some(APP.parse().unwrap()), ..expected.clone() };
    assert!(!judge("doc_a.cose", &app).verified, "an expectation that cannot be compared is not met");
    let other = Expectations { os_image_hash: Some("00".repeat(32).parse().unwrap()), ..expected.clone() };
    assert_eq!(judge("doc_a.cose", &other).claim(ClaimId::Boot).unwrap().outcome, Outcome::Fails);
    let fresh = Expectations { nonce: Some(crate::appraisal::Nonce::Own([7; 64])), ..expected.clone() };
    assert_eq!(judge("doc_a.cose", &fresh).claim(ClaimId::Freshness).unwrap().outcome, Outcome::Fails);
    assert_eq!(judge("doc_debug.cose", &expected).claim(ClaimId::Signature).unwrap().outcome, Outcome::Fails);
}

/// The minted document with its root, judged as `change` has it.
fn judge_minted(
    expectations: &Expectations,
    change: impl FnOnce(&mut AttestationDocument, Vec<u8>),
) -> Option<Appraisal> {
    let testdata = testdata()?.join("minted");
    let at = Timestamp::from_millisecond(1_790_000_000_000).unwrap();
    let root = std::fs::read(testdata.join("nitro_root_ca.der")).unwrap();
    let verifier =
        Verifier::offline(TrustRoots::vendors().with_development_root(root).unwrap(), Clock::fixed(at));
    let mut document = AttestationDocument::default();
    change(&mut document, std::fs::read(testdata.join("nitro_untagged.cose")).unwrap());
    let evidence = Evidence { document, connection: Connection::Terminated };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    Some(runtime.block_on(crate::appraisal::appraise(&verifier, &evidence, expectations)).appraisal)
}

fn minted_image() -> Expectations {
    let image = "2cc35be11a332cbdfe462725a65dd826f84d8bcf40dde2fc1dce8360a161df83".parse().unwrap();
    Expectations { os_image_hash: Some(image), ..Expectations::default() }
}

fn base64(bytes: &[u8]) -> String {
    base64::Engine::encode(&base64::prelude::BASE64_STANDARD, bytes)
}

#[test]
fn an_enclave_of_a_development_root_is_not_hardware() {
    let plain = |document: &mut AttestationDocument, bytes: Vec<u8>| document.document = Some(base64(&bytes));
    let Some(appraisal) = judge_minted(&minted_image(), plain) else { return };
    assert!(appraisal.verified && !appraisal.hardware, "{}", lines(&appraisal));
    let sentence = &appraisal.claim(ClaimId::Signature).unwrap().sentence;
    assert!(sentence.contains("NO HARDWARE PROTECTION"), "{sentence}");

    let production = Expectations { production: true, ..minted_image() };
    let appraisal = judge_minted(&production, plain).unwrap();
    assert!(!appraisal.verified, "{}", lines(&appraisal));
    assert_eq!(appraisal.claim(ClaimId::Signature).unwrap().outcome, Outcome::Fails);
    assert!(appraisal.claims.iter().all(|claim| claim.outcome != Outcome::Holds), "{}", lines(&appraisal));
}

/// Guests answer with both forms.
#[test]
fn an_enclave_is_judged_in_both_forms_of_its_evidence() {
    let versioned = |evidence: PlatformEvidence| {
        let attestation = VersionedAttestation {
            evidence,
            runtime_events: Vec::new(),
            report_data: [0; 64],
            config: String::new(),
        };
        Some(hex::encode(attestation.encode().unwrap()))
    };
    let judge = |change: &dyn Fn(&mut AttestationDocument, Vec<u8>)| {
        judge_minted(&minted_image(), |document, bytes| change(document, bytes)).map(|of| of.verified)
    };
    let both = judge(&|document, bytes| {
        document.document = Some(base64(&bytes));
        document.attestation = versioned(PlatformEvidence::NitroEnclave { document: bytes });
    });
    let Some(both) = both else { return };
    assert!(both);
    assert_eq!(
        judge(&|document, bytes| {
            document.attestation = versioned(PlatformEvidence::NitroEnclave { document: bytes });
        }),
        Some(true)
    );
    let contradicting = [
        PlatformEvidence::NitroEnclave { document: b"another".to_vec() },
        PlatformEvidence::Tdx { quote: Vec::new(), event_log: Vec::new() },
    ];
    for evidence in contradicting {
        let other = judge(&|document, bytes| {
            document.document = Some(base64(&bytes));
            document.attestation = versioned(evidence.clone());
        });
        assert_eq!(other, Some(false), "{evidence:?}");
    }
}

#[test]
fn an_enclave_without_user_data_covers_no_nonce() {
    let Some(testdata) = testdata() else { return };
    let root = std::fs::read(testdata.join("minted/nitro_root_ca.der")).unwrap();
    let roots = TrustRoots::vendors().with_development_root(root).unwrap();
    let bytes = std::fs::read(testdata.join("minted/nitro_untagged.cose")).unwrap();
    let mut proven =
        Verifier::offline(roots, Clock::fixed(Timestamp::UNIX_EPOCH)).nitro_stored(&bytes).unwrap();
    let mut of = |user_data: Option<Vec<u8>>| {
        proven.user_data = user_data;
        crate::appraisal::enclave::covered(&proven)
    };
    let mut padded = [0; 64];
    padded[0] = 7;
    assert_eq!(of(Some(vec![7])), Some(padded));
    assert_eq!(of(Some(vec![0; 64])), Some([0; 64]));
    for nothing in [None, Some(Vec::new()), Some(vec![7; 65])] {
        assert_eq!(of(nothing), None);
    }
}
