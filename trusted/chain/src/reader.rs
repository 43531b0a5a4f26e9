//! Asks questions through the lens: at the confirmed block and at the newest one, in one round trip.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::Address;
use cloister_contracts::lens::{Inquiry, ViewedBlock};
use cloister_verifier::Clock;
use serde_json::{Value, json};

use crate::answers::BlockRef;
use crate::config::{ChainConfig, InvalidChainConfig};
use crate::error::{ChainError, EndpointFailure, Failure};
use crate::heads::{Heads, Known, header, header_call};
use crate::quorum::Endpoints;
use crate::rpc::endpoint::Endpoint;
use crate::rpc::wire::{self, hexadecimal};
use crate::rpc::{Call, Item};

/// Most log entries of a receipt.
pub const MAX_LOGS: usize = 1024;

/// Reads one chain. Cheap to clone; clones share what is known of the chain's head and of the endpoints.
#[derive(Clone, Debug)]
pub struct Chain(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: ChainConfig,
    pub(crate) endpoints: Endpoints,
    pub(crate) heads: Heads,
}

/// Answers to the same questions at both blocks.
pub(crate) struct Both<A> {
    /// The confirmed block.
    pub(crate) at: BlockRef,
    /// At the confirmed block, in the order of the questions.
    pub(crate) confirmed: Vec<A>,
    /// At the newest block.
    pub(crate) latest: Vec<A>,
}

/// What one endpoint says.
struct Vote<A> {
    both: Both<A>,
    head: u64,
    next: BlockRef,
}

impl Chain {
    /// A reader of the chain that `config` describes. Asks nothing yet.
    pub fn new(config: ChainConfig, clock: Clock) -> Result<Self, InvalidChainConfig> {
        config.check()?;
        let endpoint = |url| Endpoint::new(url, &config, &clock).map(Arc::new);
        let endpoints = Endpoints {
            chain: config.name.clone(),
            all: config.endpoints.iter().map(endpoint).collect::<Result<_, _>>()?,
            quorum: config.quorum,
            patience: config.request_timeout.checked_div(4).unwrap_or(Duration::from_secs(1)),
        };
        let heads = Heads::new(config.confirmations, config.max_head_age, clock);
        Ok(Self(Arc::new(Inner { config, endpoints, heads })))
    }

    /// Which chain this is, and how it is asked.
    #[must_use]
    pub fn config(&self) -> &ChainConfig {
        &self.0.config
    }

    /// The answers to `inquiries`, which are asked together.
    pub(crate) async fn ask<I>(&self, inquiries: &[I]) -> Result<Both<I::Answer>, ChainError>
    where
        I: Inquiry,
        I::Answer: PartialEq,
    {
        let data: Vec<String> = inquiries
            .iter()
            .map(|inquiry| inquiry.call_data().map(|data| data.to_string()))
            .collect::<Result<_, _>>()
            .map_err(|_| ChainError::TooMuch {
                what: "bytes of question",
                limit: cloister_contracts::lens::MAX_QUESTION_BYTES,
            })?;
        let (mut known, was_known) = match self.0.heads.known() {
            Some(known) => (known, true),
            None => (self.0.heads.look_up(&self.0.endpoints).await?, false),
        };
        let mut asked = self.ask_at(inquiries, &data, &known).await;
        if asked.as_ref().is_err_and(may_be_reorganised) {
            self.0.heads.forget();
            known = self.0.heads.look_up(&self.0.endpoints).await?;
            asked = self.ask_at(inquiries, &data, &known).await;
        }
        let both = asked?;
        // What is new at the head may be confirmed meanwhile.
        let learnt = self.0.heads.known().filter(|now| self.0.heads.confirmed_at(now.head) > both.at.number);
        match learnt {
            Some(now) if was_known && both.confirmed != both.latest => {
                let known = self.0.heads.confirm(&self.0.endpoints, now.head).await?;
                self.ask_at(inquiries, &data, &known).await
            }
            _ => Ok(both),
        }
    }

    /// One round trip: everything at the confirmed block of `known`, and at the head.
    async fn ask_at<I>(
        &self,
        inquiries: &[I],
        data: &[String],
        known: &Known,
    ) -> Result<Both<I::Answer>, ChainError>
    where
        I: Inquiry,
        I::Answer: PartialEq,
    {
        let vote = |endpoint: Arc<Endpoint>| async move {
            let items = endpoint.batch(self.calls(data, known)).await?;
            self.read(inquiries, known, items)
        };
        let same = |a: &Vote<I::Answer>, b: &Vote<I::Answer>| {
            a.both.confirmed == b.both.confirmed && a.both.latest == b.both.latest
        };
        let votes = self.0.endpoints.agree(vote, same).await?;
        let head = votes.iter().map(|vote| vote.head).min().unwrap_or(known.head);
        let mut votes = votes.into_iter();
        let first = votes.next().ok_or_else(|| self.nobody())?;
        // Who answers equally may still disagree about the next confirmed block; then nothing is learnt, and what is
        // known grows old until all endpoints are asked for it.
        if votes.all(|vote| vote.next == first.next) {
            self.0.heads.learn(Known::new(first.next, head.max(first.next.number)));
        }
        Ok(first.both)
    }

    fn calls(&self, data: &[String], known: &Known) -> Vec<Call> {
        let confirmed = wire::exactly(&known.confirmed);
        let at = |block: &Value| data.iter().map(|data| lens_call(data, block)).collect::<Vec<_>>();
        let mut calls = at(&confirmed);
        calls.extend(at(&"latest".into()));
        calls.push(header_call("latest"));
        calls.push(header_call(&hexadecimal(known.confirmed.number)));
        calls.push(header_call(&hexadecimal(self.0.heads.confirmed_at(known.head))));
        calls
    }

    fn read<I: Inquiry>(
        &self,
        inquiries: &[I],
        known: &Known,
        mut items: Vec<Item>,
    ) -> Result<Vote<I::Answer>, Failure> {
        let next = header(items.pop())?;
        let still_there = header(items.pop())?;
        let head = header(items.pop())?;
        if still_there != known.confirmed {
            return Err(Failure::UnknownBlock);
        }
        self.0.heads.check_age(head.timestamp)?;
        let is_confirmed = |at: &ViewedBlock| {
            let is_it = at.number == known.confirmed.number && at.timestamp == known.confirmed.timestamp;
            // A node that makes a block meanwhile, or one of several behind an address: asked once more, like one whose
            // chain was reorganised.
            if is_it { Ok(()) } else { Err(Failure::UnknownBlock) }
        };
        let is_newest = |at: &ViewedBlock| {
            if at.number < known.confirmed.number {
                return Err(Failure::Garbage("an answer of an old block"));
            }
            self.0.heads.check_age(at.timestamp)
        };
        let mut items = items.into_iter();
        let confirmed = self.answers(inquiries, &mut items, is_confirmed)?;
        let latest = self.answers(inquiries, &mut items, is_newest)?;
        Ok(Vote { both: Both { at: known.confirmed, confirmed, latest }, head: head.number, next })
    }

    /// The answers to `inquiries`, each of a block that is good enough.
    fn answers<I: Inquiry>(
        &self,
        inquiries: &[I],
        items: &mut impl Iterator<Item = Item>,
        is_good: impl Fn(&ViewedBlock) -> Result<(), Failure>,
    ) -> Result<Vec<I::Answer>, Failure> {
        let answer = |inquiry: &I| {
            let item = items.next().ok_or(Failure::Garbage("an answer is missing"))??;
            let answered = inquiry
                .answer(&wire::data(&item)?)
                .map_err(|_| Failure::Garbage("not an answer to the question about contracts"))?;
            if answered.at.chain_id != self.0.config.chain_id {
                return Err(Failure::WrongChain(answered.at.chain_id.to_string()));
            }
            is_good(&answered.at)?;
            Ok(answered.answer)
        };
        inquiries.iter().map(answer).collect()
    }

    pub(crate) fn nobody(&self) -> ChainError {
        let (chain, needed) = (self.0.config.name.clone(), self.0.config.quorum);
        ChainError::NoQuorum { chain, needed, agreed: 0, endpoints: Vec::new() }
    }
}

/// The call of the lens with a question, at a block. From nobody: contracts must not answer differently to somebody.
fn lens_call(data: &str, block: &Value) -> Call {
    let gas = hexadecimal(cloister_contracts::lens::GAS);
    Call::new("eth_call", json!([{"from": Address::ZERO.to_string(), "data": data, "gas": gas}, block]))
}

/// Whether a failure is what a chain looks like whose confirmed block is another one now. Nodes word that differently.
fn may_be_reorganised(error: &ChainError) -> bool {
    let is_sign =
        |failure: &EndpointFailure| matches!(failure.why, Failure::UnknownBlock | Failure::Rpc { .. });
    matches!(error, ChainError::NoQuorum { endpoints, .. } if endpoints.iter().any(is_sign))
}
