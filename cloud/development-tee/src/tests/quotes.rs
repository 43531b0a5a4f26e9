//! What the vendor and a platform make passes a verifier, and nothing else does.

use crate::{
    CollateralOptions, Platform, PlatformKey, QuotingEnclave, SEPT_VE_DISABLE, SecurityVersions, TdReport,
    Validity, Vendor, VendorCollateral, VendorOptions,
};
use cloister_evidence::{Measurement, Registers};
use dcap_qvl::QuoteCollateralV3;
use dcap_qvl::verify::QuoteVerifier;
use jiff::{SignedDuration, Timestamp};

type Change<'a> = &'a dyn Fn(&mut CollateralOptions);

fn now() -> Timestamp {
    "2026-11-21T12:34:56Z".parse().unwrap()
}

fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}

fn report() -> TdReport {
    let registers = Registers {
        mrtd: Measurement::of("firmware"),
        rtmr0: Measurement::of("shape"),
        rtmr1: Measurement::of("kernel"),
        rtmr2: Measurement::of("command line"),
        rtmr3: Measurement::of("application"),
    };
    TdReport::new(registers, [1; 48], [7; 64])
}

fn platform(vendor: &Vendor) -> Platform {
    let key = PlatformKey::generate().unwrap();
    let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now()).unwrap();
    Platform::new(key, &chain).unwrap()
}

fn verify_with_root(
    root: &[u8],
    quote: &[u8],
    collateral: &VendorCollateral,
    at: Timestamp,
) -> Result<(String, Vec<String>, Vec<u8>), String> {
    let collateral: QuoteCollateralV3 =
        serde_json::from_value(serde_json::to_value(collateral).unwrap()).unwrap();
    let verified = QuoteVerifier::new(root.to_vec())
        .verify(quote, &collateral, u64::try_from(at.as_second()).unwrap())
        .map_err(|error| format!("{error:#}"))?;
    Ok((verified.status, verified.advisory_ids, verified.ppid))
}

fn verify(
    vendor: &Vendor,
    quote: &[u8],
    collateral: &VendorCollateral,
) -> Result<(String, Vec<String>, Vec<u8>), String> {
    verify_with_root(vendor.root_der(), quote, collateral, now())
}

#[test]
fn a_quote_verifies_under_the_vendors_root_and_under_no_other() {
    let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
    let platform = platform(&vendor);
    let quote = platform.quote(&report()).unwrap();
    let collateral = vendor.collateral(now()).unwrap();
    let (status, advisories, ppid) = verify(&vendor, &quote, &collateral).unwrap();
    assert_eq!((status.as_str(), advisories.as_slice()), ("UpToDate", [].as_slice()));
    assert_eq!(ppid, platform.ppid());

    let other = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
    verify_with_root(other.root_der(), &quote, &collateral, now()).unwrap_err();
    verify(&vendor, &quote, &other.collateral(now()).unwrap()).unwrap_err();
    let intel = QuoteVerifier::new_prod();
    let as_intel: QuoteCollateralV3 =
        serde_json::from_value(serde_json::to_value(&collateral).unwrap()).unwrap();
    intel.verify(&quote, &as_intel, u64::try_from(now().as_second()).unwrap()).unwrap_err();
}

#[test]
fn the_quote_says_what_the_report_says() {
    let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
    let report = report();
    let quote = platform(&vendor).quote(&report).unwrap();
    let parsed = dcap_qvl::quote::Quote::parse(&quote).unwrap();
    let body = parsed.report.as_td10().unwrap();
    assert_eq!(body.mr_td, *report.registers.mrtd.as_bytes());
    assert_eq!(body.rt_mr0, *report.registers.rtmr0.as_bytes());
    assert_eq!(body.rt_mr3, *report.registers.rtmr3.as_bytes());
    assert_eq!((body.mr_config_id, body.report_data), ([1; 48], [7; 64]));
}

#[test]
fn no_changed_bit_of_the_signed_parts_passes() {
    let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
    let quote = platform(&vendor).quote(&report()).unwrap();
    let collateral = vendor.collateral(now()).unwrap();
    // Header and body, then signature, attestation key, quoting enclave's report and its signature. Where
    // a verifier may ignore a byte (user data is signed, lengths are not), the quote must still not pass.
    for at in (0..632).chain(636..764).chain(770..1218).step_by(11) {
        let mut tampered = quote.clone();
        tampered[at] ^= 1;
        assert!(verify(&vendor, &tampered, &collateral).is_err(), "byte {at}");
    }
    for length in (0..quote.len()).step_by(97) {
        assert!(verify(&vendor, &quote[..length], &collateral).is_err(), "{length} bytes");
    }
}

#[test]
fn everything_that_can_be_chosen_shows() {
    let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
    let platform = platform(&vendor);
    let good = platform.quote(&report()).unwrap();
    let collateral = |change: &dyn Fn(&mut CollateralOptions)| {
        let mut options = CollateralOptions::at(now());
        change(&mut options);
        vendor.collateral_with(&options).unwrap()
    };
    let (status, advisories, _) = verify(
        &vendor,
        &good,
        &collateral(&|options| {
            options.status = "OutOfDate".to_owned();
            options.advisory_ids = vec!["CLOISTER-SA-1".to_owned()];
        }),
    )
    .unwrap();
    assert_eq!((status.as_str(), advisories), ("OutOfDate", vec!["CLOISTER-SA-1".to_owned()]));
    let (status, ..) =
        verify(&vendor, &good, &collateral(&|options| options.enclave_status = "OutOfDate".to_owned()))
            .unwrap();
    assert_eq!(status, "OutOfDate");

    let refused: [(&str, Change<'_>); 9] = [
        ("revoked level", &|options| options.status = "Revoked".to_owned()),
        ("revoked platform", &|options| options.revoked_platforms = vec![*platform.ppid()]),
        ("revoked authority", &|options| options.platform_authority_revoked = true),
        ("revoked signer", &|options| options.tcb_signing_revoked = true),
        ("other kind", &|options| options.fmspc = Some([1; 6])),
        ("newer versions", &|options| {
            options.versions = Some(SecurityVersions { pce: 12, ..SecurityVersions::default() });
        }),
        ("expired", &|options| options.next_update = now() - hours(1)),
        ("expired revocations", &|options| options.revocations_next_update = now() - hours(1)),
        ("not issued yet", &|options| options.issued_at = now() + hours(1)),
    ];
    for (what, change) in refused {
        assert!(verify(&vendor, &good, &collateral(change)).is_err(), "{what}");
    }

    let fine = vendor.collateral(now()).unwrap();
    let debug = TdReport { td_attributes: SEPT_VE_DISABLE | 1, ..report() };
    verify(&vendor, &platform.quote(&debug).unwrap(), &fine).unwrap_err();
    let exceptions = TdReport { td_attributes: 0, ..report() };
    verify(&vendor, &platform.quote(&exceptions).unwrap(), &fine).unwrap_err();
    let old = TdReport { tee_tcb_svn: [0; 16], ..report() };
    verify(&vendor, &platform.quote(&old).unwrap(), &fine).unwrap_err();
}

#[test]
fn certificates_of_another_time_and_enclaves_of_another_name_do_not_pass() {
    let past = Validity { from: now() - hours(48), until: now() - hours(24) };
    for options in [
        VendorOptions { validity: Some(past), ..VendorOptions::default() },
        VendorOptions { platform_validity: Some(past), ..VendorOptions::default() },
    ] {
        let vendor = Vendor::in_memory(options, now()).unwrap();
        let quote = platform(&vendor).quote(&report()).unwrap();
        verify(&vendor, &quote, &vendor.collateral(now()).unwrap()).unwrap_err();
    }
    let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
    let key = PlatformKey::generate().unwrap();
    let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now()).unwrap();
    let stranger = QuotingEnclave { mr_signer: [9; 32], ..QuotingEnclave::default() };
    let quote = Platform::with_enclave(key, &chain, &stranger).unwrap().quote(&report()).unwrap();
    verify(&vendor, &quote, &vendor.collateral(now()).unwrap()).unwrap_err();
}

#[test]
fn collateral_covers_its_moment_with_room_for_slow_clocks() {
    let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
    let quote = platform(&vendor).quote(&report()).unwrap();
    for later in [0, 24 * 7, 24 * 365 * 5] {
        let at = now() + hours(later);
        let collateral = vendor.collateral(at).unwrap();
        for moment in [at - hours(23), at, at + hours(24 * 27)] {
            verify_with_root(vendor.root_der(), &quote, &collateral, moment).unwrap();
        }
        verify_with_root(vendor.root_der(), &quote, &collateral, at + hours(24 * 31)).unwrap_err();
    }
}
