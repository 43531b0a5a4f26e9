//! The core of the published matrix with evidence minted for the test, for clones without the vectors.

use cloister_development_tee::{
    CollateralOptions, QuotingEnclave, SEPT_VE_DISABLE, SecurityVersions, TdReport,
};
use cloister_verifier::{Collateral, TcbStatus, Tee, TrustRoot, VerifiedQuote, VerifyError};
use jiff::SignedDuration;
use sha2::{Digest as _, Sha256};

use crate::support::{Minted, collateral, now};

type Change = fn(&mut CollateralOptions);
type ReportChange = fn(&mut TdReport);
type Mixture = fn(&mut Collateral, Collateral);

fn verify(minted: &Minted, quote: &[u8], with: &Collateral) -> Result<VerifiedQuote, VerifyError> {
    minted.verifier().quote_with(quote, with, now())
}

#[test]
fn a_good_quote_and_its_claims() {
    let minted = Minted::new();
    let report = Minted::report();
    let with = minted.collateral();
    let verified = verify(&minted, &minted.quote(), &with).unwrap();
    assert_eq!(verified.trust_root, TrustRoot::Development);
    assert_eq!((verified.tee, verified.version), (Tee::Tdx, 4));
    assert_eq!((verified.tcb_status, verified.advisory_ids.len()), (TcbStatus::UpToDate, 0));
    assert_eq!(verified.ppid, *minted.platform.ppid());
    assert_eq!(verified.device_id.as_slice(), Sha256::digest(verified.ppid).as_slice());
    assert_eq!(verified.fmspc, minted.vendor.options().fmspc);
    assert_eq!(verified.registers, Some(report.registers));
    assert_eq!(*verified.mr_config_id.as_bytes(), report.mr_config_id);
    assert_eq!(verified.report_data, report.report_data);
    assert_eq!(verified.td_attributes, SEPT_VE_DISABLE.to_le_bytes());
    assert_eq!(*verified.collateral, with);
    assert!(verified.issued_at <= now() && now() < verified.valid_until);
}

#[test]
fn the_vendors_word_decides_the_status() {
    let minted = Minted::new();
    let quote = minted.quote();
    for status in TcbStatus::ALL {
        let with = minted.collateral_with(|options| {
            options.status = status.to_string();
            options.advisory_ids = vec!["INTEL-SA-00001".into()];
        });
        let verdict = verify(&minted, &quote, &with);
        match status {
            TcbStatus::Revoked => assert!(verdict.unwrap_err().to_string().contains("Revoked")),
            // A vendor's list cannot say so; only the verifier of a relaunched machine does.
            TcbStatus::TdRelaunchAdvised | TcbStatus::TdRelaunchAdvisedConfigurationNeeded => {
                verdict.unwrap_err();
            }
            _ => {
                let verified = verdict.unwrap();
                assert_eq!(verified.tcb_status, status);
                assert_eq!(verified.advisory_ids, ["INTEL-SA-00001"]);
            }
        }
    }
}

#[test]
fn collateral_that_does_not_fit_or_hold() {
    let minted = Minted::new();
    let quote = minted.quote();
    let cases: &[(&str, Change)] = &[
        ("in the future", |options| options.issued_at = now() + SignedDuration::from_secs(1)),
        ("expired", |options| options.next_update = now() - SignedDuration::from_secs(1)),
        ("CrlExpired", |options| options.revocations_next_update = now()),
        ("Fmspc mismatch", |options| options.fmspc = Some([1; 6])),
        ("No matching TCB level", |options| {
            options.versions = Some(SecurityVersions { pce: 99, ..SecurityVersions::default() });
        }),
        ("CertRevoked", |options| options.platform_authority_revoked = true),
        ("CertRevoked", |options| options.tcb_signing_revoked = true),
        ("Revoked", |options| options.enclave_status = "Revoked".into()),
        ("MRSIGNER mismatch", |options| {
            options.enclave = QuotingEnclave { mr_signer: [9; 32], ..QuotingEnclave::default() };
        }),
    ];
    for (reason, change) in cases {
        let error = verify(&minted, &quote, &minted.collateral_with(change)).unwrap_err();
        assert!(error.to_string().contains(reason), "{reason}: {error}");
    }
    let ppid = *minted.platform.ppid();
    let revoked = minted.collateral_with(|options| options.revoked_platforms = vec![ppid]);
    let error = verify(&minted, &quote, &revoked).unwrap_err();
    assert!(error.to_string().contains("CertRevoked"), "{error}");

    let other = Minted::new();
    verify(&minted, &quote, &other.collateral()).unwrap_err();
    assert_eq!(verify(&other, &quote, &other.collateral()).unwrap_err(), VerifyError::UnknownRoot);
}

#[test]
fn collateral_is_bounded_and_every_signature_in_it_counts() {
    let minted = Minted::new();
    let (quote, good) = (minted.quote(), minted.collateral());
    let other = Minted::new().collateral();
    let changes: [(&str, Mixture); 7] = [
        ("root CRL", |to, from| to.root_ca_crl = from.root_ca_crl),
        ("PCK CRL", |to, from| to.pck_crl = from.pck_crl),
        ("TCB info", |to, _| to.tcb_info = to.tcb_info.replacen("UpToDate", "OutOfDate", 1)),
        ("TCB signature", |to, from| to.tcb_info_signature = from.tcb_info_signature),
        ("TCB signer", |to, from| to.tcb_info_issuer_chain = from.tcb_info_issuer_chain),
        ("QE identity", |to, _| to.qe_identity = to.qe_identity.replacen("UpToDate", "OutOfDate", 1)),
        ("QE signature", |to, from| to.qe_identity_signature = from.qe_identity_signature),
    ];
    for (name, change) in changes {
        let mut collateral = good.clone();
        change(&mut collateral, other.clone());
        assert_ne!(collateral, good, "{name}");
        assert!(verify(&minted, &quote, &collateral).is_err(), "{name}");
    }
    let huge = Collateral { tcb_info: " ".repeat(5 << 20), ..good };
    assert!(verify(&minted, &quote, &huge).unwrap_err().is_malformed());
}

#[test]
fn machines_that_are_not_protected() {
    let minted = Minted::new();
    let with = minted.collateral();
    let cases: &[(&str, ReportChange)] = &[
        ("debug mode", |report| report.td_attributes |= 1),
        ("debug mode", |report| report.td_attributes |= 1 << 3),
        ("SEPT_VE_DISABLE", |report| report.td_attributes = 0),
        ("migration", |report| report.td_attributes |= 1 << 29),
        ("not signed by Intel", |report| report.mr_signer_seam = [1; 48]),
        ("SEAMATTRIBUTES", |report| report.seam_attributes = [1; 8]),
        ("No matching TCB level", |report| report.tee_tcb_svn = [0; 16]),
    ];
    for (reason, change) in cases {
        let mut report = Minted::report();
        change(&mut report);
        let quote = minted.platform.quote(&report).unwrap();
        let error = verify(&minted, &quote, &with).unwrap_err();
        let text = error.to_string().to_lowercase();
        assert!(text.contains(&reason.to_lowercase()), "{reason}: {error}");
    }
}

#[test]
fn a_chain_in_the_collateral_replaces_the_quotes_own() {
    let minted = Minted::new();
    let quote = minted.quote();
    let parsed = dcap_qvl::quote::Quote::parse(&quote).unwrap();
    let chain = String::from_utf8(parsed.raw_cert_chain().unwrap().to_vec()).unwrap();
    let own = Collateral { pck_certificate_chain: Some(chain), ..minted.collateral() };
    verify(&minted, &quote, &own).unwrap();

    // Another platform's, of the same vendor: the quote was not signed by it.
    let key = cloister_development_tee::PlatformKey::generate().unwrap();
    let another = minted.vendor.issue_platform_certificate(key.ppid(), key.public_key(), now()).unwrap();
    let with = Collateral { pck_certificate_chain: Some(another), ..minted.collateral() };
    verify(&minted, &quote, &with).unwrap_err();

    // One that ends elsewhere, or nowhere.
    for chain in [Minted::new().vendor.root_pem().to_owned(), String::new(), "nonsense".to_owned()] {
        let with = Collateral { pck_certificate_chain: Some(chain), ..minted.collateral() };
        assert_eq!(verify(&minted, &quote, &with).unwrap_err(), VerifyError::UnknownRoot);
    }
}

#[test]
fn collateral_has_the_members_that_public_verifiers_know() {
    let minted = Minted::new();
    let of_vendor = minted.vendor.collateral(now()).unwrap();
    let json = serde_json::to_value(&of_vendor).unwrap();
    let ours = collateral(&of_vendor);
    assert_eq!(serde_json::to_value(&ours).unwrap(), json);
    let theirs: dcap_qvl::QuoteCollateralV3 = serde_json::from_value(json).unwrap();
    assert_eq!(dcap_qvl::QuoteCollateralV3::from(&ours), theirs);
}
