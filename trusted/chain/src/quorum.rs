//! Asking several endpoints until enough of them say the same.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::sleep;
use tracing::warn;

use crate::error::{ChainError, EndpointFailure, Failure};
use crate::rpc::endpoint::Endpoint;

/// The endpoints of one chain, and how many must agree.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// The chain's name.
    pub(crate) chain: String,
    /// All of them, in the order of the configuration.
    pub(crate) all: Vec<Arc<Endpoint>>,
    /// How many must say the same.
    pub(crate) quorum: usize,
    /// After how long without enough answers one more endpoint is asked.
    pub(crate) patience: Duration,
}

/// Answers that are the same, and who gave them.
struct Party<T> {
    members: Vec<(Arc<Endpoint>, T)>,
}

struct Poll<T> {
    /// Who has not answered yet.
    asked: Vec<Arc<Endpoint>>,
    parties: Vec<Party<T>>,
    failures: Vec<EndpointFailure>,
}

impl Endpoints {
    /// Asks as many endpoints as must agree, and others in their place when they fail, contradict or are slow. Gives
    /// the answers of the first `quorum` that are the same; dropping the rest.
    pub(crate) async fn agree<T, F>(
        &self,
        ask: impl Fn(Arc<Endpoint>) -> F,
        same: impl Fn(&T, &T) -> bool,
    ) -> Result<Vec<T>, ChainError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut waiting = self.in_order().into_iter();
        let mut poll = Poll::new();
        let mut under_way = FuturesUnordered::new();
        under_way.extend(poll.ask(waiting.by_ref().take(self.quorum).collect(), &ask));
        loop {
            tokio::select! {
                biased;
                answered = under_way.next() => match answered {
                    Some((endpoint, answer)) => poll.count(endpoint, answer, &same),
                    None => return Err(poll.lost(self)),
                },
                () = sleep(self.patience), if waiting.len() > 0 => {
                    poll.doubt_the_slow();
                    under_way.extend(poll.ask(waiting.next().into_iter().collect(), &ask));
                }
            }
            if poll.largest() >= self.quorum {
                return Ok(poll.won());
            }
            let missing = self.quorum.saturating_sub(poll.largest().saturating_add(under_way.len()));
            under_way.extend(poll.ask(waiting.by_ref().take(missing).collect(), &ask));
        }
    }

    /// Asks all endpoints and gives what they answer. Once there are enough answers it waits for slower ones only a
    /// moment longer.
    pub(crate) async fn survey<T, F>(&self, ask: impl Fn(Arc<Endpoint>) -> F) -> Result<Vec<T>, ChainError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut poll = Poll::new();
        let mut under_way = FuturesUnordered::new();
        under_way.extend(poll.ask(self.in_order(), &ask));
        while poll.largest() < self.quorum {
            let Some((endpoint, answer)) = under_way.next().await else { return Err(poll.lost(self)) };
            poll.count(endpoint, answer, &|_, _| true);
        }
        let grace = sleep(self.patience);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                biased;
                answered = under_way.next() => match answered {
                    Some((endpoint, answer)) => poll.count(endpoint, answer, &|_, _| true),
                    None => return Ok(poll.won()),
                },
                () = &mut grace => {
                    poll.doubt_the_slow();
                    return Ok(poll.won());
                }
            }
        }
    }

    /// Those that did well first.
    pub(crate) fn in_order(&self) -> Vec<Arc<Endpoint>> {
        let mut endpoints = self.all.clone();
        endpoints.sort_by_key(|endpoint| endpoint.is_in_doubt());
        endpoints
    }
}

impl<T> Poll<T> {
    const fn new() -> Self {
        Self { asked: Vec::new(), parties: Vec::new(), failures: Vec::new() }
    }

    /// Asks `endpoints`.
    fn ask<F: Future<Output = Result<T, Failure>>, A: Fn(Arc<Endpoint>) -> F>(
        &mut self,
        endpoints: Vec<Arc<Endpoint>>,
        ask: &A,
    ) -> Vec<impl Future<Output = (Arc<Endpoint>, Result<T, Failure>)> + use<T, F, A>> {
        self.asked.extend(endpoints.iter().cloned());
        let answers = endpoints.into_iter().map(|endpoint| {
            let answer = ask(Arc::clone(&endpoint));
            async move { (endpoint, answer.await) }
        });
        answers.collect()
    }

    /// Who keeps others waiting is asked after them the next time, even if nobody waits for the end of it.
    fn doubt_the_slow(&self) {
        for endpoint in &self.asked {
            endpoint.note(false);
        }
    }

    fn count(&mut self, endpoint: Arc<Endpoint>, answer: Result<T, Failure>, same: &impl Fn(&T, &T) -> bool) {
        match answer {
            Ok(answer) => {
                let of_same = |party: &&mut Party<T>| {
                    party.members.first().is_some_and(|(_, first)| same(first, &answer))
                };
                match self.parties.iter_mut().find(of_same) {
                    Some(party) => party.members.push((endpoint, answer)),
                    None => self.parties.push(Party { members: vec![(endpoint, answer)] }),
                }
            }
            Err(why) => self.fail(&endpoint, why),
        }
    }

    fn fail(&mut self, endpoint: &Endpoint, why: Failure) {
        endpoint.note(false);
        warn!(endpoint = endpoint.name(), %why, "an endpoint of a chain does not count");
        self.failures.push(EndpointFailure { endpoint: endpoint.name().to_owned(), why });
    }

    fn largest(&self) -> usize {
        self.parties.iter().map(|party| party.members.len()).max().unwrap_or(0)
    }

    /// The answers of the largest party; the others were wrong.
    fn won(mut self) -> Vec<T> {
        let size = self.largest();
        let winner = self.parties.iter().position(|party| party.members.len() == size);
        let Some(winner) = winner.map(|at| self.parties.swap_remove(at)) else { return Vec::new() };
        self.dissent();
        let answers = winner.members.into_iter().map(|(endpoint, answer)| {
            endpoint.note(true);
            answer
        });
        answers.collect()
    }

    fn lost(mut self, endpoints: &Endpoints) -> ChainError {
        let agreed = self.largest();
        if self.parties.len() > 1 {
            self.dissent();
        }
        ChainError::NoQuorum {
            chain: endpoints.chain.clone(),
            needed: endpoints.quorum,
            agreed,
            endpoints: self.failures,
        }
    }

    fn dissent(&mut self) {
        for party in std::mem::take(&mut self.parties) {
            for (endpoint, _) in party.members {
                self.fail(&endpoint, Failure::Differs);
            }
        }
    }
}
