//! What a relying party demands.

use cloister_evidence::Measurement;
use cloister_verifier::{Policy, TcbStatus, UnknownTcbStatus};

use crate::support::{Minted, now};

#[test]
fn the_default_takes_what_is_up_to_date() {
    let minted = Minted::new();
    let verify = |status: TcbStatus| {
        let with = minted.collateral_with(|options| options.status = status.to_string());
        minted.verifier().quote_with(&minted.quote(), &with, now()).unwrap()
    };
    Policy::default().check(&verify(TcbStatus::UpToDate)).unwrap();
    let hardening = verify(TcbStatus::SwHardeningNeeded);
    let refused = Policy::default().check(&hardening).unwrap_err();
    assert_eq!(refused.to_string(), "the platform's TCB status is SWHardeningNeeded, which is not accepted");
    let accepting = Policy { accepted_tcb: [TcbStatus::SwHardeningNeeded].into(), ..Policy::default() };
    accepting.check(&hardening).unwrap();
    accepting.check(&verify(TcbStatus::UpToDate)).unwrap_err();
}

#[test]
fn every_demand_that_is_not_met_is_told() {
    let minted = Minted::new();
    let with = minted.collateral_with(|options| {
        options.status = "OutOfDate".into();
        options.advisory_ids = vec!["INTEL-SA-00001".into(), "INTEL-SA-00002".into()];
    });
    let verified = minted.verifier().quote_with(&minted.quote(), &with, now()).unwrap();
    let wrong = Some(Measurement::ZERO);
    let mut policy = Policy { production: true, ..Policy::default() };
    policy.denied_advisories = ["INTEL-SA-00002".to_owned(), "INTEL-SA-00003".to_owned()].into();
    policy.expected.mrtd = wrong;
    policy.expected.rtmr = [wrong; 4];
    policy.expected.mr_config_id = wrong;
    policy.expected.report_data = Some([0; 64]);
    let violations = policy.check(&verified).unwrap_err();
    let lines: Vec<_> = violations.as_slice().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn what_is_as_expected_passes() {
    let minted = Minted::new();
    let verified = minted.verifier().quote_with(&minted.quote(), &minted.collateral(), now()).unwrap();
    let registers = Minted::report().registers;
    let mut policy = Policy::default();
    policy.expected.mrtd = Some(registers.mrtd);
    policy.expected.rtmr = registers.rtmrs().map(|register| Some(*register));
    policy.expected.mr_config_id = Some(Measurement::from_bytes([1; 48]));
    policy.expected.report_data = Some([7; 64]);
    policy.check(&verified).unwrap();
    // Each on its own is compared.
    for index in 0..4 {
        let mut policy = policy.clone();
        policy.expected.rtmr[index] = Some(Measurement::ZERO);
        let violations = policy.check(&verified).unwrap_err();
        assert_eq!(violations.as_slice().len(), 1);
        assert!(violations.to_string().starts_with(&format!("RTMR{index} is ")), "{violations}");
    }
}

#[test]
fn statuses_are_spelled_as_the_vendor_does() {
    for status in TcbStatus::ALL {
        assert_eq!(status.to_string().parse(), Ok(status));
        assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{status}\""));
    }
    for text in ["", "uptodate", "UpToDate ", "UNKNOWN"] {
        assert_eq!(text.parse::<TcbStatus>(), Err(UnknownTcbStatus), "{text}");
    }
}
