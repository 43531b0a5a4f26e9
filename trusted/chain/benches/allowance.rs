//! What it takes to ask about 1,000 pairs of document and device, and about one, on a real node.

use std::io::{Write as _, stdout};
use std::time::{Duration, Instant};

use cloister_chain::{Address, AllowanceQuestion, AppBootInfo, Chain, Clock, Transaction};
use cloister_contracts::abi::Kms::KmsEvents;
use cloister_contracts::{NewApp, events};
use cloister_development_chain::{ACCOUNTS, Config, DevelopmentChain, StartError};

const RUNS: usize = 50;

fn pairs(count: u32) -> Vec<AllowanceQuestion> {
    let word = |tag: u8, number: u32| {
        let mut word = [tag; 32];
        for (to, from) in word.iter_mut().zip(number.to_be_bytes()) {
            *to = from;
        }
        word
    };
    (0..count)
        .map(|number| AllowanceQuestion { compose_hash: word(1, number), device_id: word(2, number) })
        .collect()
}

/// An application that allows none of them.
async fn new_app(node: &DevelopmentChain) -> Result<Address, Box<dyn std::error::Error>> {
    let [owner, ..] = &ACCOUNTS;
    let app = NewApp {
        owner: owner.address(),
        disable_upgrades: false,
        require_tcb_up_to_date: false,
        allow_any_device: false,
        device_id: None,
        compose_hash: None,
    };
    let call = Transaction::call(node.kms_contract(), app.call_data());
    let receipt = node.sender(owner)?.send(&call, |_| {}).await?;
    let logs = receipt.logs.iter().filter(|log| log.address == node.kms_contract());
    let mut made = logs.filter_map(|log| {
        let log = events::Log { address: log.address, topics: &log.topics, data: &log.data };
        match events::decode_event(log) {
            Ok(events::Event::Kms(KmsEvents::AppDeployedViaFactory(event))) => Some(event.appId),
            _ => None,
        }
    });
    Ok(made.next().ok_or("the factory made no application")?)
}

/// The median of some runs.
async fn median(mut run: impl AsyncFnMut()) -> Duration {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        run().await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times.get(RUNS / 2).copied().unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = match DevelopmentChain::start(Config::default(), Clock::system()).await {
        Err(StartError::NotInstalled) => {
            return Ok(writeln!(stdout(), "skipped: {}", StartError::NotInstalled)?);
        }
        started => started?,
    };
    let chain = Chain::new(node.config(), Clock::system())?;
    let kms = node.kms_contract();
    let app = new_app(&node).await?;
    let questions = pairs(1000);
    let cold = Instant::now();
    chain.allowances(app, &questions).await?;
    let cold = cold.elapsed();
    let many = median(async || drop(chain.allowances(app, &questions).await)).await;
    let one = median(async || drop(chain.allowances(app, &pairs(1)).await)).await;
    let boot = AppBootInfo { appId: app, ..AppBootInfo::default() };
    let verdict = median(async || drop(chain.is_app_allowed(kms, &boot).await)).await;
    let mut out = stdout().lock();
    writeln!(out, "| Question | Round trips | Median time |\n|---|---:|---:|")?;
    writeln!(out, "| 1,000 distinct pairs, head unknown (once) | 3 | {cold:.1?} |")?;
    writeln!(out, "| 1,000 distinct pairs | 1 | {many:.1?} |")?;
    writeln!(out, "| 1 pair | 1 | {one:.1?} |")?;
    writeln!(out, "| isAppAllowed | 1 | {verdict:.1?} |")?;
    Ok(())
}
