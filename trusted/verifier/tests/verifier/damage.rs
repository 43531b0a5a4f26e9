//! Evidence with something changed, cut off or added never passes.

use cloister_verifier::{
    Clock, Collateral, CollateralCache, CollateralKey, CollateralSources, InProcess, MAX_QUOTE_BYTES,
    TrustRoot, Verifier,
};
use jiff::Timestamp;
use proptest::prelude::*;

use crate::support::{Minted, at, now, offline, read, read_collateral, read_quote};

/// The places of changed bytes that still pass. Every `step`th is changed, each in another of its bits.
fn passing(
    verifier: &Verifier,
    quote: &[u8],
    collateral: &Collateral,
    time: Timestamp,
    step: usize,
) -> Vec<usize> {
    verifier.quote_with(quote, collateral, time).unwrap();
    let passes = |place: &usize| {
        let mut damaged = quote.to_vec();
        damaged[*place] ^= 1 << (place % 8);
        verifier.quote_with(&damaged, collateral, time).is_ok()
    };
    (0..quote.len()).step_by(step).filter(passes).collect()
}

#[test]
fn no_changed_byte_of_a_quote_passes() {
    let minted = Minted::new();
    let passed = passing(&minted.verifier(), &minted.quote(), &minted.collateral(), now(), 1);
    assert_eq!(passed, [0_usize; 0]);
}

/// The same while the platform is known and its collateral kept.
#[test]
fn no_changed_byte_of_a_known_platforms_quote_passes() {
    let minted = Minted::new();
    let collateral = minted.collateral();
    let source = InProcess::new(move |_: &CollateralKey| Ok(collateral.clone()));
    let sources = CollateralSources::new().with(TrustRoot::Development, source);
    let cache = CollateralCache::start(sources, Clock::fixed(now())).unwrap();
    let roots = minted.verifier().roots().clone();
    let warm = Verifier::new(roots, cache, Clock::fixed(now()));
    let quote = minted.quote();
    let first = warm.quote_blocking(&quote).unwrap();
    assert_eq!(warm.quote_blocking(&quote).unwrap(), first);
    for place in 0..quote.len() {
        let mut damaged = quote.clone();
        damaged[place] ^= 1 << (place % 8);
        assert!(warm.quote_blocking(&damaged).is_err(), "byte {place}");
    }
    assert_eq!(warm.quote_blocking(&quote).unwrap(), first);
    // A good chain under a quote that another platform signed.
    let other = minted.another_platform().quote(&Minted::report()).unwrap();
    let chain_at = quote.windows(27).position(|part| part == b"-----BEGIN CERTIFICATE-----").unwrap();
    assert!(warm.quote_blocking(&other).is_ok());
    assert!(warm.quote_blocking(&[&other[..chain_at], &quote[chain_at..]].concat()).is_err());
}

#[test]
fn no_changed_byte_of_published_quotes_passes() {
    let Some(root) = read("minted/root_ca.der") else { return };
    for (root, quote, collateral, time) in [
        (Some(root.as_slice()), "minted/quote_v4.bin", "minted/collateral_uptodate.json", 1_795_000_000),
        (Some(&root), "minted/quote_v5_td10body.bin", "minted/collateral_uptodate.json", 1_795_000_000),
        (None, "dcap/tdx_v4_td10.bin", "dcap/tdx_v4_td10.collateral.json", 1_751_624_191),
        (None, "dcap/sgx_v3.bin", "dcap/sgx_v3.collateral.json", 1_751_624_924),
    ] {
        let (bytes, with) = (read_quote(quote).unwrap(), read_collateral(collateral).unwrap());
        assert_eq!(passing(&offline(root), &bytes, &with, at(time), 7), [0_usize; 0], "{quote}");
    }
}

#[test]
fn no_part_of_a_quote_passes() {
    let minted = Minted::new();
    let (verifier, quote, collateral) = (minted.verifier(), minted.quote(), minted.collateral());
    for length in 0..quote.len() {
        assert!(verifier.quote_with(&quote[..length], &collateral, now()).is_err(), "{length} bytes");
    }
}

#[test]
fn only_zeros_may_follow_a_quote() {
    let minted = Minted::new();
    let (verifier, quote, collateral) = (minted.verifier(), minted.quote(), minted.collateral());
    let followed_by = |more: &[u8]| verifier.quote_with(&[&quote, more].concat(), &collateral, now());
    // Drivers that hand out a buffer of fixed size do that.
    assert_eq!(followed_by(&[0; 3000]).unwrap().report_data, [7; 64]);
    assert!(followed_by(&[0, 0, 1]).unwrap_err().is_malformed());
    assert!(followed_by(&quote).unwrap_err().is_malformed());
    assert!(followed_by(&vec![0; MAX_QUOTE_BYTES]).unwrap_err().is_malformed());
}

#[test]
fn mixtures_of_two_quotes_do_not_pass() {
    let minted = Minted::new();
    let (verifier, collateral) = (minted.verifier(), minted.collateral());
    let mut report = Minted::report();
    report.report_data = [8; 64];
    let (one, two) = (minted.quote(), minted.platform.quote(&report).unwrap());
    assert_eq!(one.len(), two.len());
    let mixes = (1..one.len()).map(|place| [&one[..place], &two[place..]].concat());
    for mixed in mixes.filter(|mixed| *mixed != one && *mixed != two) {
        assert!(verifier.quote_with(&mixed, &collateral, now()).is_err());
    }
}

proptest! {
    #[test]
    fn anything_else_is_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..6000)) {
        let verifier = offline(None);
        prop_assert!(verifier.collateral_key(&bytes).is_err());
        prop_assert!(verifier.nitro_stored(&bytes).is_err());
    }

    #[test]
    fn quotes_with_random_parts_are_refused_without_a_panic(
        place in 0_usize..4000,
        with in proptest::collection::vec(any::<u8>(), 1..64),
    ) {
        let quote = MINTED.with(|(minted, quote)| {
            let mut damaged = quote.clone();
            for (to, from) in damaged.iter_mut().skip(place).zip(&with) {
                *to = *from;
            }
            (minted.verifier(), minted.collateral(), damaged, quote.clone())
        });
        let (verifier, collateral, damaged, original) = quote;
        prop_assert_eq!(verifier.quote_with(&damaged, &collateral, now()).is_ok(), damaged == original);
    }
}

thread_local! {
    static MINTED: (Minted, Vec<u8>) = {
        let minted = Minted::new();
        let quote = minted.quote();
        (minted, quote)
    };
}
