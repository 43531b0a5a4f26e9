//! Verification of quotes against a bare call of `dcap-qvl`, side by side in one run; throughput of the
//! bounded pool; what a busy pool leaves to others on the same runtime; fetches of cold collateral.
//!
//! `cargo bench -p cloister-verifier --bench verify` prints the tables; docs/performance.md quotes them.
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench prints; its sizes are small and known"
)]

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cloister_development_tee::{Platform, PlatformKey, TdReport, Vendor, VendorOptions};
use cloister_evidence::{Measurement, Registers};
use cloister_verifier::{
    Clock, Collateral, CollateralCache, CollateralError, CollateralKey, CollateralSources, InProcess,
    TrustRoot, TrustRoots, Verifier,
};
use dcap_qvl::QuoteCollateralV3;
use dcap_qvl::verify::QuoteVerifier;
use jiff::Timestamp;

const ROUNDS: usize = 9;
const CALLS: usize = 200;
const COLD_CALLERS: usize = 64;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, Failure>;

struct Evidence {
    root: Vec<u8>,
    quote: Vec<u8>,
    collateral: Collateral,
    now: Timestamp,
}

impl Evidence {
    fn mint() -> Outcome<Self> {
        let now: Timestamp = "2026-11-21T12:34:56Z".parse()?;
        let vendor = Vendor::in_memory(VendorOptions::default(), now)?;
        let key = PlatformKey::generate()?;
        let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now)?;
        let registers = Registers {
            mrtd: Measurement::of("firmware"),
            rtmr0: Measurement::of("shape"),
            rtmr1: Measurement::of("kernel"),
            rtmr2: Measurement::of("command line"),
            rtmr3: Measurement::of("application"),
        };
        let quote = Platform::new(key, &chain)?.quote(&TdReport::new(registers, [1; 48], [7; 64]))?;
        let collateral = serde_json::from_value(serde_json::to_value(vendor.collateral(now)?)?)?;
        Ok(Self { root: vendor.root_der().to_vec(), quote, collateral, now })
    }

    /// A verifier with a cold cache, and how often collateral was made for it.
    fn verifier(&self) -> Outcome<(Verifier, Arc<AtomicUsize>)> {
        let fetches = Arc::new(AtomicUsize::new(0));
        let (collateral, counter) = (self.collateral.clone(), Arc::clone(&fetches));
        let source = InProcess::new(move |_: &CollateralKey| -> Result<Collateral, CollateralError> {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(collateral.clone())
        });
        let clock = Clock::fixed(self.now);
        let sources = CollateralSources::new().with(TrustRoot::Development, source);
        let cache = CollateralCache::start(sources, clock.clone())?;
        let roots = TrustRoots::vendors().with_development_root(self.root.clone())?;
        Ok((Verifier::new(roots, cache, clock), fetches))
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let evidence = Arc::new(Evidence::mint()?);
    println!("| One verification, warm | Time | of a bare call |\n|---|---|---|");
    // On a worker of the runtime, where callers are, not on the thread that waits for it.
    tokio::spawn(one_by_one(Arc::clone(&evidence))).await??;
    println!("\n| Pool | Quotes/s | of one worker | p99 of a timer of 1 ms beside it |\n|---|---|---|---|");
    throughput(&evidence).await?;
    println!("\n| Callers, cold | Fetches |\n|---|---|");
    cold(&evidence).await
}

/// Bare and ours in turns, so that whatever else the machine does hits both.
async fn one_by_one(evidence: Arc<Evidence>) -> Outcome<()> {
    let (verifier, _) = evidence.verifier()?;
    verifier.quote(&evidence.quote).await?;
    let bare = QuoteVerifier::new(evidence.root.clone());
    let collateral = QuoteCollateralV3::from(&evidence.collateral);
    let seconds = u64::try_from(evidence.now.as_second())?;
    let (mut of_bare, mut of_blocking, mut of_async) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_bare.push(timed(|| Ok(bare.verify(&evidence.quote, &collateral, seconds).map(drop)?))?);
        of_blocking.push(timed(|| Ok(verifier.quote_blocking(&evidence.quote).map(drop)?))?);
        let started = Instant::now();
        for _ in 0..CALLS {
            verifier.quote(&evidence.quote).await?;
        }
        of_async.push(started.elapsed() / u32::try_from(CALLS)?);
    }
    let ratios = |ours: &[Duration]| {
        median(ours.iter().zip(&of_bare).map(|(ours, bare)| ours.as_secs_f64() / bare.as_secs_f64()))
    };
    let rows =
        [("bare dcap-qvl", &of_bare), ("quote_blocking", &of_blocking), ("quote, on the pool", &of_async)];
    for (name, times) in rows {
        let time = median(times.iter().map(|time| time.as_secs_f64() * 1e6));
        println!("| {name} | {time:.0} µs | {:.2} |", ratios(times));
    }
    Ok(())
}

fn timed(call: impl Fn() -> Outcome<()>) -> Outcome<Duration> {
    let started = Instant::now();
    for _ in 0..CALLS {
        call()?;
    }
    Ok(started.elapsed() / u32::try_from(CALLS)?)
}

async fn throughput(evidence: &Evidence) -> Outcome<()> {
    let mut of_one = None;
    for workers in [1, 2] {
        let (verifier, _) = evidence.verifier()?;
        let verifier = verifier.on_workers(NonZero::new(workers).ok_or("no worker")?);
        verifier.quote(&evidence.quote).await?;
        let mut rates = Vec::new();
        let mut delays = Vec::new();
        for _ in 0..ROUNDS {
            let timer = tokio::spawn(async {
                let mut delays = Vec::new();
                loop {
                    let started = Instant::now();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    delays.push(started.elapsed());
                    if delays.len() == 100 {
                        return delays;
                    }
                }
            });
            let started = Instant::now();
            let calls: Vec<_> = (0..workers * 32)
                .map(|_| {
                    let (verifier, quote) = (verifier.clone(), evidence.quote.clone());
                    tokio::spawn(async move {
                        for _ in 0..8 {
                            verifier.quote(&quote).await?;
                        }
                        Ok::<_, cloister_verifier::VerifyError>(())
                    })
                })
                .collect();
            for call in calls {
                call.await??;
            }
            rates.push((workers * 32 * 8) as f64 / started.elapsed().as_secs_f64());
            delays.extend(timer.await?);
        }
        let rate = median(rates.into_iter());
        let base = *of_one.get_or_insert(rate);
        delays.sort();
        let p99 = delays.get(delays.len() * 99 / 100).copied().unwrap_or_default();
        println!(
            "| {workers} worker(s) | {rate:.0} | {:.2} | {:.1} ms |",
            rate / base,
            p99.as_secs_f64() * 1e3
        );
    }
    Ok(())
}

async fn cold(evidence: &Evidence) -> Outcome<()> {
    let (verifier, fetches) = evidence.verifier()?;
    let calls: Vec<_> = (0..COLD_CALLERS)
        .map(|_| {
            let (verifier, quote) = (verifier.clone(), evidence.quote.clone());
            tokio::spawn(async move { verifier.quote(&quote).await })
        })
        .collect();
    for call in calls {
        call.await??;
    }
    println!("| {COLD_CALLERS} | {} |", fetches.load(Ordering::SeqCst));
    Ok(())
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
