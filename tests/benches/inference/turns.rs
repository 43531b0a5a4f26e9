//! Servers that are compared, measured in turns: many short ones, because the machine's speed changes by a tenth from one moment
//! to the next, and what is compared should stand close together.

use std::path::Path;
use std::time::Duration;

use crate::figures::{Mean, median};
use crate::load::Seen;
use crate::process::Process;
use crate::{Failure, load};

/// How long a turn takes.
const TURN: Duration = Duration::from_secs(2);
/// Before the first: what is built up then, such as connections, does not count.
const WARM_UP: Duration = Duration::from_secs(1);

/// What was seen in one turn.
struct Turn {
    seen: Seen,
    /// Time of processors for a request, in microseconds.
    cpu_us: f64,
}

/// The turns of one server.
pub(crate) struct Turns(Vec<Turn>);

impl Turns {
    /// Requests a second.
    pub(crate) fn rate(&self) -> f64 {
        Mean::of(self.0.iter().map(|turn| turn.seen.rate())).mean
    }

    pub(crate) fn cpu_us(&self) -> Mean {
        Mean::of(self.0.iter().map(|turn| turn.cpu_us))
    }

    /// Of the turns' medians that in the middle.
    pub(crate) fn p50_ms(&self) -> f64 {
        median(self.0.iter().map(|turn| turn.seen.p50_ms()))
    }

    /// Of the turns' 99th percentiles that in the middle.
    pub(crate) fn p99_ms(&self) -> f64 {
        median(self.0.iter().map(|turn| turn.seen.p99_ms()))
    }

    /// How many times as many requests it answers as another.
    pub(crate) fn times_the_rate_of(&self, other: &Self) -> Mean {
        Mean::of(self.with(other).map(|(turn, other)| turn.seen.rate() / other.seen.rate()))
    }

    /// What another saves of the processors' time, in percent.
    pub(crate) fn saved_by(&self, other: &Self) -> Mean {
        Mean::of(self.with(other).map(|(turn, other)| 100.0 * (1.0 - other.cpu_us / turn.cpu_us)))
    }

    /// What it adds to the latencies of another: p50 and p99 in milliseconds, each that in the middle.
    pub(crate) fn added_to(&self, other: &Self) -> (f64, f64) {
        let added = |figure: fn(&Seen) -> f64| {
            median(self.with(other).map(|(turn, other)| figure(&turn.seen) - figure(&other.seen)))
        };
        (added(Seen::p50_ms), added(Seen::p99_ms))
    }

    /// Turns beside those of another in the same round.
    fn with<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Turn, &'a Turn)> {
        self.0.iter().zip(&other.0)
    }
}

/// Loads each of these servers so often, over so many connections.
pub(crate) async fn take(
    directory: &Path,
    servers: &[&Process],
    connections: u32,
    rounds: usize,
) -> Result<Vec<Turns>, Failure> {
    let mut taken: Vec<Turns> = servers.iter().map(|_| Turns(Vec::with_capacity(rounds))).collect();
    for server in servers {
        load(directory, server, connections, WARM_UP).await?;
    }
    for round in 0..rounds {
        // Nobody is always the first.
        let first = round % servers.len().max(1);
        let mut turns: Vec<_> = servers.iter().zip(&mut taken).collect();
        turns.rotate_left(first);
        for (server, taken) in turns {
            taken.0.push(turn(directory, server, connections).await?);
        }
    }
    Ok(taken)
}

async fn turn(directory: &Path, server: &Process, connections: u32) -> Result<Turn, Failure> {
    let before = server.cpu()?;
    let seen = load(directory, server, connections, TURN).await?.all_answered()?;
    let cpu_us = server.cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / seen.requests.max(1.0);
    Ok(Turn { seen, cpu_us })
}
