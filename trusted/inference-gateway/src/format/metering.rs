//! What an answer used: what the upstream tells, and else an estimate; and what it costs.

use serde::Serialize;
use serde_json::value::RawValue;

use super::counts;
use super::features::Characters;
use crate::accounting::{Tokens, cost};
use crate::body::members;
use crate::config::Pricing;

/// Longest usage that is kept, in bytes; a longer one says nothing.
const MAX_BYTES: usize = 4096;

/// Keeps account of one answer.
#[derive(Debug)]
pub(super) struct Meter {
    pricing: Pricing,
    prompt_estimate: u64,
    /// What came so far.
    pub(super) characters: Characters,
    told: Option<Told>,
    /// Whether the answer is whole: otherwise what was told may say little of what came out.
    pub(super) is_whole: bool,
}

#[derive(Debug)]
struct Told {
    usage: Box<RawValue>,
    tokens: Tokens,
    /// What had come when it was told; `None` where it counts no output, or only that of the beginning.
    after: Option<Characters>,
}

members! {
    /// What clients get of a usage; the price is the gateway's own.
    struct Usage {
        prompt_tokens,
        completion_tokens,
        total_tokens,
        prompt_tokens_details,
        completion_tokens_details,
        input_tokens,
        input_tokens_details,
        output_tokens,
        output_tokens_details,
        cache_creation_input_tokens,
        cache_read_input_tokens,
        cache_creation,
        server_tool_use,
        reasoning_tokens,
    }
}

/// What clients get of a usage that has a price.
#[derive(Serialize)]
struct Priced<'a> {
    #[serde(flatten)]
    known: Usage<'a>,
    cost: &'a RawValue,
}

impl Meter {
    pub(super) fn new(prompt_estimate: u64, pricing: &Pricing) -> Self {
        Self {
            pricing: pricing.clone(),
            prompt_estimate,
            characters: Characters::default(),
            told: None,
            is_whole: false,
        }
    }

    /// The upstream tells a usage, which replaces what it told before. Gives what the client gets of it; `None` for
    /// what counts nothing.
    pub(super) fn told(&mut self, usage: &RawValue) -> Option<Box<RawValue>> {
        self.note(usage, Some(self.characters))
    }

    /// The same of a usage that does not count what came out so far: that is estimated, also of a whole answer.
    pub(super) fn told_early(&mut self, usage: &RawValue) -> Option<Box<RawValue>> {
        self.note(usage, None)
    }

    fn note(&mut self, usage: &RawValue, after: Option<Characters>) -> Option<Box<RawValue>> {
        let tokens = Tokens::parse(usage.get()).filter(|_| usage.get().len() <= MAX_BYTES)?;
        let told = Told { usage: counts::only(usage), tokens, after };
        let billed = if after.is_some() { tokens } else { self.at_least(&told) };
        let shown = self.with_cost(usage, billed)?;
        self.told = Some(told);
        Some(shown)
    }

    /// The known members of a usage, without a price.
    pub(super) fn shown(usage: &RawValue) -> Option<Box<RawValue>> {
        let known: Usage<'_> = serde_json::from_str(usage.get()).ok()?;
        serde_json::value::to_raw_value(&known).ok()
    }

    /// The known members of a usage, and its price.
    fn with_cost(&self, usage: &RawValue, tokens: Tokens) -> Option<Box<RawValue>> {
        let known = serde_json::from_str(usage.get()).ok()?;
        let cost = RawValue::from_string(self.cost(tokens)).ok()?;
        serde_json::value::to_raw_value(&Priced { known, cost: &cost }).ok()
    }

    /// An exact decimal, as JSON writes numbers.
    pub(super) fn cost(&self, tokens: Tokens) -> String {
        cost(tokens, &self.pricing).normalize().to_string()
    }

    pub(super) fn usage(&self) -> Option<&RawValue> {
        self.told.as_ref().map(|told| told.usage.as_ref())
    }

    /// As told at the end of a whole answer. Otherwise an estimate, where that is more than what was told.
    pub(super) fn tokens(&self) -> Tokens {
        let estimate = || Tokens {
            prompt: self.prompt_estimate,
            completion: self.characters.billed(),
            ..Tokens::default()
        };
        match &self.told {
            None => estimate(),
            Some(Told { tokens, after, .. }) if self.is_whole && *after == Some(self.characters) => *tokens,
            Some(told) => self.at_least(told),
        }
    }

    /// What was told, or the estimate of what came out where that is more.
    fn at_least(&self, told: &Told) -> Tokens {
        Tokens { completion: told.tokens.completion.max(self.characters.billed()), ..told.tokens }
    }
}
