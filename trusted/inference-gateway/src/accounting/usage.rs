//! Tokens as upstreams count them, and their price.

use rust_decimal::Decimal;
use rust_decimal::prelude::FromPrimitive;
use serde::Deserialize;

use crate::config::Pricing;

/// Largest count that is believed, in tokens: no answer has as many.
const MAX_TOKENS: f64 = 1e12;

/// What an answer used. OpenAI's and Anthropic's members are both understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Tokens that were sent, those of caches included.
    pub prompt: u64,
    /// Tokens that came back.
    pub completion: u64,
    /// Of the sent ones, those that were read from a cache.
    pub cache_read: u64,
    /// Of the sent ones, those that were put into a cache.
    pub cache_creation: u64,
}

/// Counts may come as fractions, or not at all.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Wire {
    prompt_tokens: Option<f64>,
    completion_tokens: Option<f64>,
    input_tokens: Option<f64>,
    output_tokens: Option<f64>,
    cache_read_input_tokens: Option<f64>,
    cache_creation_input_tokens: Option<f64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<f64>,
}

/// A count that makes sense; anything else is nothing.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded on both sides")]
fn count(tokens: Option<f64>) -> u64 {
    tokens.filter(|tokens| (0.0..=MAX_TOKENS).contains(tokens)).map_or(0, |tokens| tokens.ceil() as u64)
}

impl Tokens {
    /// Reads a `usage` member; `None` if it is no object with counts of tokens.
    #[must_use]
    pub fn parse(usage: &str) -> Option<Self> {
        let wire: Wire = serde_json::from_str(usage).ok()?;
        let details = wire.prompt_tokens_details.or(wire.input_tokens_details).unwrap_or_default();
        let cache_read = count(wire.cache_read_input_tokens.or(details.cached_tokens));
        let cache_creation = count(wire.cache_creation_input_tokens);
        let prompt = match (wire.prompt_tokens, wire.input_tokens, wire.input_tokens_details) {
            (Some(prompt), _, _) => count(Some(prompt)),
            // Anthropic's count leaves out what caches had; that of the Responses surface has it.
            (None, Some(input), None) => count(Some(input)).saturating_add(cache_read + cache_creation),
            (None, Some(input), Some(_)) => count(Some(input)),
            (None, None, _) => return None,
        };
        let completion = count(wire.completion_tokens.or(wire.output_tokens));
        Some(Self { prompt, completion, cache_read, cache_creation })
    }

    /// The same, with no more than so many that were sent and that came back.
    #[must_use]
    pub fn at_most(self, prompt: u64, completion: u64) -> Self {
        let prompt = self.prompt.min(prompt);
        let cache_read = self.cache_read.min(prompt);
        let cache_creation = self.cache_creation.min(prompt - cache_read);
        Self { prompt, completion: self.completion.min(completion), cache_read, cache_creation }
    }

    /// All tokens.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

/// What tokens cost, exactly. Of tokens that caches had, their own rate counts, or else that of sent ones.
#[must_use]
pub fn cost(tokens: Tokens, pricing: &Pricing) -> Decimal {
    let fresh = tokens.prompt.saturating_sub(tokens.cache_read.saturating_add(tokens.cache_creation));
    let rows = [
        (fresh, pricing.prompt),
        (tokens.cache_read, pricing.cache_read.unwrap_or(pricing.prompt)),
        (tokens.cache_creation, pricing.cache_creation.unwrap_or(pricing.prompt)),
        (tokens.completion, pricing.completion),
    ];
    rows.into_iter().fold(Decimal::ZERO, |sum, (count, rate)| {
        sum.saturating_add(rate.saturating_mul(Decimal::from_u64(count).unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pricing() -> Pricing {
        Pricing {
            prompt: "0.000001".parse().unwrap(),
            completion: "0.000002".parse().unwrap(),
            cache_read: Some("0.0000005".parse().unwrap()),
            cache_creation: None,
        }
    }

    #[test]
    fn the_published_example() {
        let usage =
            r#"{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":10}}"#;
        let tokens = Tokens::parse(usage).unwrap();
        assert_eq!(cost(tokens, &pricing()).normalize().to_string(), "0.000135");
    }

    #[test]
    fn both_vendors_members() {
        let tokens =
            |usage| Tokens::parse(usage).map(|tokens| (tokens.prompt, tokens.completion, tokens.cache_read));
        assert_eq!(tokens(r#"{"prompt_tokens":3.0,"completion_tokens":4}"#), Some((3, 4, 0)));
        assert_eq!(
            tokens(
                r#"{"input_tokens":5,"output_tokens":7,"cache_read_input_tokens":2,"cache_creation_input_tokens":1}"#
            ),
            Some((8, 7, 2))
        );
        assert_eq!(
            tokens(r#"{"input_tokens":5,"output_tokens":7,"input_tokens_details":{"cached_tokens":2}}"#),
            Some((5, 7, 2))
        );
        assert_eq!(tokens(r#"{"prompt_tokens":-3,"completion_tokens":1e300}"#), Some((0, 0, 0)));
        for bad in ["null", "{}", "[]", "3", r#"{"total_tokens":3}"#, r#"{"prompt_tokens":"3"}"#] {
            assert_eq!(tokens(bad), None, "{bad}");
        }
    }

    fn any_pricing() -> impl Strategy<Value = Pricing> {
        let price = || (0_i64..100_000).prop_map(|mantissa| Decimal::new(mantissa, 8));
        let other = || prop::option::of(price());
        (price(), price(), other(), other()).prop_map(|(prompt, completion, cache_read, cache_creation)| {
            Pricing { prompt, completion, cache_read, cache_creation }
        })
    }

    proptest! {
        /// A cost is the sum of its parts, and never negative, whatever an upstream counts.
        #[test]
        fn costs_add_up(prompt in 0_u64..1 << 40, completion in 0_u64..1 << 40, cached in 0_u64..1 << 41) {
            let tokens = Tokens { prompt, completion, cache_read: cached, cache_creation: 0 };
            let whole = cost(tokens, &pricing());
            let parts = cost(Tokens { completion: 0, ..tokens }, &pricing())
                + cost(Tokens { completion, ..Tokens::default() }, &pricing());
            prop_assert_eq!(whole, parts);
            prop_assert!(whole >= Decimal::ZERO);
        }

        /// Whatever is used, the dearest of two prices costs no less than either.
        #[test]
        fn the_dearest_costs_most(
            [one, two] in [any_pricing(), any_pricing()],
            [prompt, completion, cache_read, cache_creation] in [0_u64..1 << 20, 0_u64..1 << 20, 0_u64..1 << 20, 0_u64..1 << 20],
        ) {
            let tokens = Tokens { prompt, completion, cache_read, cache_creation };
            let most = cost(tokens, &one.clone().dearest(&two));
            prop_assert!(most >= cost(tokens, &one) && most >= cost(tokens, &two));
        }
    }
}
