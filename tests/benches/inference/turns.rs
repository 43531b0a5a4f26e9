//! Servers that are compared, measured in turns: many short ones, because the machine's speed changes by a tenth from one moment
//! to the next, and what is compared should stand close together.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use crate::figures::Mean;
use crate::load::Seen;
use crate::process::Process;
use crate::{Failure, load};

/// How long a turn takes.
const TURN: Duration = Duration::from_secs(2);
/// What a server does behind its answers, such as filing records, is still its own for so long after a turn.
const REST: Duration = Duration::from_millis(500);
/// Before a turn, for what a server would have done while it was stopped.
const AWAKENING: Duration = Duration::from_millis(100);
/// Before the first turn: what is built up once does not count.
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
    pub(crate) fn rate(&self) -> Mean {
        self.mean(|turn| turn.seen.rate())
    }

    pub(crate) fn cpu_us(&self) -> Mean {
        self.mean(|turn| turn.cpu_us)
    }

    pub(crate) fn p50_ms(&self) -> Mean {
        self.mean(|turn| turn.seen.p50_ms())
    }

    pub(crate) fn p99_ms(&self) -> Mean {
        self.mean(|turn| turn.seen.p99_ms())
    }

    /// How many times as many requests it answers as another.
    pub(crate) fn times_the_rate_of(&self, other: &Self) -> Mean {
        Mean::of_ratios(self.with(other).map(|(turn, other)| (turn.seen.rate(), other.seen.rate())))
    }

    /// What another saves of the processors' time, in percent.
    pub(crate) fn saved_by(&self, other: &Self) -> Mean {
        let saved = self.with(other).map(|(turn, other)| (turn.cpu_us - other.cpu_us, turn.cpu_us));
        let Mean { mean, error } = Mean::of_ratios(saved);
        Mean { mean: 100.0 * mean, error: 100.0 * error }
    }

    pub(crate) fn p50_ms_added_to(&self, other: &Self) -> Mean {
        Mean::of(self.with(other).map(|(turn, other)| turn.seen.p50_ms() - other.seen.p50_ms()))
    }

    pub(crate) fn p99_ms_added_to(&self, other: &Self) -> Mean {
        Mean::of(self.with(other).map(|(turn, other)| turn.seen.p99_ms() - other.seen.p99_ms()))
    }

    fn mean(&self, figure: impl Fn(&Turn) -> f64) -> Mean {
        Mean::of(self.0.iter().map(figure))
    }

    /// Turns beside those of another in the same round.
    fn with<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Turn, &'a Turn)> {
        self.0.iter().zip(&other.0)
    }
}

/// Loads each of these servers so often, over so many connections, while the others are stopped.
pub(crate) async fn take(
    directory: &Path,
    servers: &[&Process],
    connections: u32,
    rounds: usize,
) -> Result<Vec<Turns>, Failure> {
    let taken = take_turns(directory, servers, connections, rounds).await;
    for server in servers {
        server.go_on()?;
    }
    taken
}

/// Leaves them stopped.
async fn take_turns(
    directory: &Path,
    servers: &[&Process],
    connections: u32,
    rounds: usize,
) -> Result<Vec<Turns>, Failure> {
    let mut taken: Vec<Turns> = servers.iter().map(|_| Turns(Vec::with_capacity(rounds))).collect();
    for server in servers {
        load(directory, server, connections, WARM_UP).await?;
        server.stop()?;
    }
    for round in 0..rounds {
        let mut turns: Vec<_> = servers.iter().zip(&mut taken).collect();
        // Nobody always follows the same one.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (server, taken) in turns {
            server.go_on()?;
            sleep(AWAKENING).await;
            taken.0.push(turn(directory, server, connections).await?);
            server.stop()?;
        }
    }
    Ok(taken)
}

async fn turn(directory: &Path, server: &Process, connections: u32) -> Result<Turn, Failure> {
    let before = server.cpu()?;
    let seen = load(directory, server, connections, TURN).await?.all_answered()?;
    sleep(REST).await;
    let cpu_us = server.cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / seen.requests.max(1.0);
    Ok(Turn { seen, cpu_us })
}
