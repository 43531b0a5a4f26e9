//! The cache, over a vendor in the same process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cloister_development_tee::CollateralOptions;
use cloister_verifier::{
    Collateral, CollateralCache, CollateralError, CollateralKey, CollateralSource, CollateralSources,
    FetchFuture, InProcess, TrustRoot, TrustRoots, Update, Verifier, VerifyError,
};
use jiff::SignedDuration;

use crate::support::{Minted, TestClock, collateral, now};

/// A vendor behind a cache, counted, that can fail.
struct Counted {
    cache: Arc<CollateralCache>,
    clock: TestClock,
    asked: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
    minted: Arc<Minted>,
}

impl Counted {
    fn new() -> Self {
        let (minted, clock) = (Arc::new(Minted::new()), TestClock::standing_at(now()));
        let (asked, fails) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let source = {
            let (asked, fails) = (Arc::clone(&asked), Arc::clone(&fails));
            let (minted, clock) = (Arc::clone(&minted), clock.clone());
            InProcess::new(move |key: &CollateralKey| {
                asked.fetch_add(1, Ordering::SeqCst);
                if fails.load(Ordering::SeqCst) {
                    return Err(CollateralError::Unreachable("down".into()));
                }
                let options =
                    CollateralOptions { fmspc: Some(key.fmspc), ..CollateralOptions::at(clock.now()) };
                Ok(collateral(&minted.vendor.collateral_with(&options).unwrap()))
            })
        };
        let sources = CollateralSources::new().with(TrustRoot::Development, source);
        let cache = CollateralCache::start(sources, clock.clock()).unwrap();
        Self { cache, clock, asked, fails, minted }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn verifier(&self) -> Verifier {
        let roots = TrustRoots::vendors().with_development_root(self.minted.vendor.root_der()).unwrap();
        Verifier::new(roots, Arc::clone(&self.cache), self.clock.clock())
    }

    fn key(&self) -> CollateralKey {
        self.minted.verifier().collateral_key(&self.minted.quote()).unwrap()
    }
}

/// Looks until `holds`, for two minutes.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_mins(2), "{what}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn quotes_are_verified_with_it_in_both_ways() {
    let counted = Counted::new();
    let (verifier, quote) = (counted.verifier(), counted.minted.quote());
    let proven = verifier.quote(&quote).await.unwrap();
    assert_eq!(proven.trust_root, TrustRoot::Development);
    assert_eq!(proven.verified_at, now());
    // A TLS handshake runs on a thread of the runtime and must not wait asynchronously.
    assert_eq!(verifier.quote_blocking(&quote).unwrap(), proven);
    assert_eq!(counted.asked(), 1);
    let cold = Counted::new();
    cold.verifier().quote_blocking(&cold.minted.quote()).unwrap();
    assert_eq!(cold.asked(), 1);
}

#[test]
fn it_is_refreshed_before_it_expires_and_callers_do_not_wait() {
    let counted = Counted::new();
    let key = counted.key();
    let first = counted.cache.get_blocking(&key).unwrap();
    // Good for thirty days, but what is revoked meanwhile must be noticed within one.
    counted.clock.advance(SignedDuration::from_hours(23));
    assert!(Arc::ptr_eq(&first, &counted.cache.get_blocking(&key).unwrap()));
    assert_eq!(counted.asked(), 1);
    counted.clock.advance(SignedDuration::from_hours(2));
    counted.cache.get_blocking(&key).unwrap();
    eventually("a new entry takes the old one's place", || {
        !Arc::ptr_eq(&first, &counted.cache.get_blocking(&key).unwrap())
    });
    assert_eq!(counted.asked(), 2);
}

#[test]
fn a_failing_refresh_keeps_what_is_good_and_nothing_longer() {
    let counted = Counted::new();
    let key = counted.key();
    let first = counted.cache.get_blocking(&key).unwrap();
    counted.fails.store(true, Ordering::SeqCst);
    counted.clock.advance(SignedDuration::from_hours(24 * 28));
    assert!(Arc::ptr_eq(&first, &counted.cache.get_blocking(&key).unwrap()));
    eventually("a refresh is tried", || counted.asked() == 2);
    for _ in 0..100 {
        assert!(Arc::ptr_eq(&first, &counted.cache.get_blocking(&key).unwrap()));
    }
    assert_eq!(counted.asked(), 2, "after a failure there is a pause");
    // Past its end it is not used, whether or not there is another.
    counted.clock.advance(SignedDuration::from_hours(24 * 2));
    assert_eq!(counted.cache.get_blocking(&key), Err(CollateralError::Unreachable("down".into())));
    counted.fails.store(false, Ordering::SeqCst);
    counted.clock.advance(SignedDuration::from_secs(3));
    assert!(!Arc::ptr_eq(&first, &counted.cache.get_blocking(&key).unwrap()));
}

#[test]
fn failures_are_remembered_for_a_moment_only() {
    let counted = Counted::new();
    let key = counted.key();
    counted.fails.store(true, Ordering::SeqCst);
    for _ in 0..10 {
        counted.cache.get_blocking(&key).unwrap_err();
    }
    assert_eq!(counted.asked(), 1);
    counted.fails.store(false, Ordering::SeqCst);
    counted.cache.get_blocking(&key).unwrap_err();
    counted.clock.advance(SignedDuration::from_secs(2));
    counted.cache.get_blocking(&key).unwrap();
    assert_eq!(counted.asked(), 2);

    // Nor for as long as a clock that is set back takes to catch up.
    let counted = Counted::new();
    counted.fails.store(true, Ordering::SeqCst);
    counted.clock.advance(SignedDuration::from_hours(1));
    counted.cache.get_blocking(&key).unwrap_err();
    counted.fails.store(false, Ordering::SeqCst);
    counted.clock.advance(SignedDuration::from_hours(-1));
    counted.cache.get_blocking(&key).unwrap();
}

/// Waits to be let go for the minted platform, and panics for others.
struct Faulty {
    minted: Arc<Minted>,
    go: Arc<tokio::sync::Notify>,
    asked: Arc<AtomicUsize>,
}

impl CollateralSource for Faulty {
    fn fetch<'a>(&'a self, key: &'a CollateralKey, _: Update) -> FetchFuture<'a> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            assert_eq!(key.fmspc, self.minted.vendor.options().fmspc, "a fault of the test");
            self.go.notified().await;
            Ok(self.minted.collateral())
        })
    }
}

#[test]
fn a_source_that_panics_fails_nobody_elses_fetch() {
    let minted = Arc::new(Minted::new());
    let (go, asked) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicUsize::new(0)));
    let source = Faulty { minted: Arc::clone(&minted), go: Arc::clone(&go), asked: Arc::clone(&asked) };
    let sources = CollateralSources::new().with(TrustRoot::Development, source);
    let cache = CollateralCache::start(sources, TestClock::standing_at(now()).clock()).unwrap();
    let key = minted.verifier().collateral_key(&minted.quote()).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cache.get_blocking(&key));
        eventually("the first fetch is under way", || asked.load(Ordering::SeqCst) == 1);
        let error = cache.get_blocking(&CollateralKey { fmspc: [9; 6], ..key }).unwrap_err();
        assert!(VerifyError::Collateral(error).is_temporary());
        go.notify_one();
        waiting.join().unwrap().unwrap();
    });
}

#[tokio::test]
async fn the_early_evaluation_is_always_asked_for_and_never_kept() {
    let counted = Counted::new();
    let key = counted.key();
    counted.cache.early(&key).await.unwrap();
    counted.cache.early(&key).await.unwrap();
    assert_eq!(counted.asked(), 2);
    counted.cache.get(&key).await.unwrap();
    assert_eq!(counted.asked(), 3);
}

#[test]
fn the_number_of_entries_is_bounded() {
    let counted = Counted::new();
    let key = counted.key();
    counted.cache.get_blocking(&key).unwrap();
    for number in 0..300_u16 {
        let [high, low] = number.to_be_bytes();
        counted.clock.advance(SignedDuration::from_secs(1));
        counted.cache.get_blocking(&CollateralKey { fmspc: [1, 2, 3, 4, high, low], ..key }).unwrap();
    }
    assert_eq!(format!("{:?}", counted.cache), "CollateralCache { entries: 256, .. }");
    // The one that nobody asked for longest had to go.
    assert_eq!(counted.asked(), 301);
    counted.cache.get_blocking(&key).unwrap();
    assert_eq!(counted.asked(), 302);
}

#[test]
fn what_does_not_fit_is_not_kept() {
    type Change = fn(&mut Collateral);
    const CASES: &[(&str, Change)] = &[
        ("other platforms", |of| of.tcb_info = of.tcb_info.replace("C0DE", "C0DF")),
        ("another kind of machine", |of| of.tcb_info = of.tcb_info.replace("\"TDX\"", "\"SGX\"")),
        ("another quoting enclave", |of| of.qe_identity = of.qe_identity.replace("TD_QE", "QE")),
        ("TCB info is not signed", |of| of.tcb_info.push(' ')),
        ("identity of the quoting enclave is not signed", |of| of.qe_identity_signature[9] ^= 1),
        ("not a revocation list", |of| of.pck_crl.truncate(9)),
        ("followed by something", |of| of.root_ca_crl.push(0)),
        ("no dates", |of| of.qe_identity = "{}".into()),
    ];
    let minted = Arc::new(Minted::new());
    for (reason, change) in CASES {
        let (vendor, clock) = (Arc::clone(&minted), TestClock::standing_at(now()));
        let source = InProcess::new(move |_: &CollateralKey| {
            let mut collateral = vendor.collateral();
            change(&mut collateral);
            Ok(collateral)
        });
        let sources = CollateralSources::new().with(TrustRoot::Development, source);
        let cache = CollateralCache::start(sources, clock.clock()).unwrap();
        let key = minted.verifier().collateral_key(&minted.quote()).unwrap();
        let error = cache.get_blocking(&key).unwrap_err();
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert!(format!("{cache:?}").contains("entries: 0"));
    }
}

#[test]
fn what_has_ended_or_not_begun_is_not_kept() {
    let counted = Counted::new();
    let key = counted.key();
    for days in [60, -60] {
        let minted = Arc::clone(&counted.minted);
        let clock = TestClock::standing_at(now() + SignedDuration::from_hours(24 * days));
        let source = InProcess::new(move |_: &CollateralKey| Ok(minted.collateral()));
        let sources = CollateralSources::new().with(TrustRoot::Development, source);
        let cache = CollateralCache::start(sources, clock.clock()).unwrap();
        assert!(matches!(cache.get_blocking(&key), Err(CollateralError::Malformed(_))), "{days}");
    }
}

#[tokio::test]
async fn nobody_is_asked_about_platforms_that_the_root_did_not_certify() {
    let counted = Counted::new();
    let (verifier, quote) = (counted.verifier(), counted.minted.quote());
    // The platform's certificate with another FMSPC in it, in otherwise plain PEM.
    let parsed = dcap_qvl::quote::Quote::parse(&quote).unwrap();
    let leaf = dcap_qvl::intel::extract_cert_chain(&parsed).unwrap().remove(0);
    let place = leaf.windows(6).position(|six| six == counted.minted.vendor.options().fmspc).unwrap();
    let mut forged = leaf.clone();
    forged[place] ^= 1;
    let (from, to) = (x509_pem(&leaf), x509_pem(&forged));
    let at = quote.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
    let mut with_forged = quote.clone();
    with_forged[at..at + to.len()].copy_from_slice(to.as_bytes());
    let key = verifier.collateral_key(&with_forged).unwrap();
    assert_ne!(key.fmspc, counted.minted.vendor.options().fmspc);

    let error = verifier.quote(&with_forged).await.unwrap_err();
    assert!(error.to_string().contains("certificate does not hold"), "{error}");
    verifier.quote_blocking(&with_forged).unwrap_err();
    verifier.quote(&Minted::new().quote()).await.unwrap_err();
    assert_eq!(counted.asked(), 0);
    verifier.quote(&quote).await.unwrap();
}

fn x509_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[test]
fn without_a_source_there_is_no_verdict() {
    let minted = Minted::new();
    let none = VerifyError::Collateral(CollateralError::NoSource(TrustRoot::Development));
    assert_eq!(minted.verifier().quote_blocking(&minted.quote()).unwrap_err(), none);
    let clock = TestClock::standing_at(now());
    let cache = CollateralCache::start(CollateralSources::new(), clock.clock()).unwrap();
    let verifier = Verifier::new(minted.verifier().roots().clone(), cache, clock.clock());
    assert_eq!(verifier.quote_blocking(&minted.quote()).unwrap_err(), none);
}

#[tokio::test]
async fn more_than_the_pool_takes_is_refused_and_the_rest_is_done() {
    let counted = Counted::new();
    let quote = counted.minted.quote();
    let one = counted.verifier().on_workers(std::num::NonZero::<usize>::MIN);
    one.quote(&quote).await.unwrap();
    let waiting: Vec<_> = (0..500)
        .map(|_| {
            let (one, quote) = (one.clone(), quote.clone());
            tokio::spawn(async move { one.quote(&quote).await })
        })
        .collect();
    let (mut done, mut busy) = (0, 0);
    for verdict in waiting {
        match verdict.await.unwrap() {
            Ok(_) => done += 1,
            Err(VerifyError::Busy) => busy += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(done >= 65 && busy > 0, "{done} verified, {busy} refused");
    one.quote(&quote).await.unwrap();
}
