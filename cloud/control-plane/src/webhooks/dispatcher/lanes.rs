//! Who may be sent to now: so many requests at the same time to each webhook, and a way around those that do not
//! answer.
//!
//! A webhook begins with a few requests at a time; each success doubles that up to a limit, and a failure leaves
//! it one. Requests that take long, and those to a webhook whose last one failed, go in the slow lane, which has
//! room of its own: however many receivers hang, the fast lane stays free for those that answer.

use std::collections::{HashMap, HashSet};

use crate::store::Candidate;

/// Requests at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// To one webhook that answers well.
    pub per_webhook: usize,
    /// To all that answer.
    pub fast: usize,
    /// To all that failed the last time, or are taking long.
    pub slow: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_webhook: 32, fast: 256, slow: 1024 }
    }
}

/// What a webhook begins with.
const BEGINNING: usize = 4;
/// Webhooks whose behaviour is remembered; behind that, new ones begin anew.
const REMEMBERED: usize = 20_000;

#[derive(Debug, Clone, Copy)]
struct Webhook {
    under_way: usize,
    window: usize,
    /// Its last request failed, or takes long.
    suspect: bool,
}

/// How a request to a webhook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Well,
    Ill,
}

/// What is under way.
#[derive(Debug)]
pub(super) struct Lanes {
    limits: Limits,
    webhooks: HashMap<i64, Webhook>,
    fast: usize,
    /// Deliveries in the slow lane.
    slow: HashSet<i64>,
}

impl Lanes {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, webhooks: HashMap::new(), fast: 0, slow: HashSet::new() }
    }

    /// Whether anything can be begun.
    pub(super) fn has_room(&self) -> bool {
        self.fast < self.limits.fast
    }

    /// Deliveries of one webhook that are worth looking at together.
    pub(super) const fn per_webhook(&self) -> usize {
        self.limits.per_webhook
    }

    /// Webhooks to which nothing more can be sent now.
    pub(super) fn saturated(&self) -> Vec<i64> {
        let no_slow_room = self.slow.len() >= self.limits.slow;
        let is_full =
            |webhook: &Webhook| webhook.under_way >= webhook.window || (webhook.suspect && no_slow_room);
        self.webhooks.iter().filter(|(_, webhook)| is_full(webhook)).map(|(id, _)| *id).collect()
    }

    /// Chooses what is begun, in turn one of each webhook, and counts it as under way.
    pub(super) fn choose(&mut self, candidates: &[Candidate]) -> Vec<Candidate> {
        let mut rank = HashMap::<i64, usize>::new();
        let mut turns: Vec<_> = candidates
            .iter()
            .map(|candidate| {
                let turn = rank.entry(candidate.webhook_id).or_default();
                *turn += 1;
                (*turn, *candidate)
            })
            .collect();
        turns.sort_by_key(|(turn, _)| *turn);
        turns.into_iter().map(|(_, candidate)| candidate).filter(|candidate| self.begin(*candidate)).collect()
    }

    fn begin(&mut self, candidate: Candidate) -> bool {
        let fresh = Webhook { under_way: 0, window: BEGINNING.min(self.limits.per_webhook), suspect: false };
        let webhook = self.webhooks.entry(candidate.webhook_id).or_insert(fresh);
        let lane_has_room =
            if webhook.suspect { self.slow.len() < self.limits.slow } else { self.fast < self.limits.fast };
        if webhook.under_way >= webhook.window || !lane_has_room {
            return false;
        }
        webhook.under_way += 1;
        if webhook.suspect {
            self.slow.insert(candidate.id);
        } else {
            self.fast += 1;
        }
        true
    }

    /// A request takes long: it makes way, and its webhook gets no more until it answers.
    pub(super) fn is_slow(&mut self, webhook_id: i64, delivery: i64) {
        if let Some(webhook) = self.webhooks.get_mut(&webhook_id) {
            (webhook.window, webhook.suspect) = (1, true);
        }
        if self.slow.len() < self.limits.slow && self.slow.insert(delivery) {
            self.fast = self.fast.saturating_sub(1);
        }
    }

    /// A request ended; `None` when it was not made.
    pub(super) fn ended(&mut self, webhook_id: i64, delivery: i64, verdict: Option<Verdict>) {
        if !self.slow.remove(&delivery) {
            self.fast = self.fast.saturating_sub(1);
        }
        if let Some(webhook) = self.webhooks.get_mut(&webhook_id) {
            webhook.under_way = webhook.under_way.saturating_sub(1);
            match verdict {
                None => {}
                Some(Verdict::Well) => {
                    webhook.window = (webhook.window * 2).min(self.limits.per_webhook);
                    webhook.suspect = false;
                }
                Some(Verdict::Ill) => (webhook.window, webhook.suspect) = (1, true),
            }
        }
        if self.webhooks.len() > REMEMBERED {
            self.webhooks.retain(|_, webhook| webhook.under_way > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { per_webhook: 8, fast: 16, slow: 4 };

    fn due(webhook_id: i64, ids: std::ops::Range<i64>) -> Vec<Candidate> {
        ids.map(|id| Candidate { id, webhook_id }).collect()
    }

    fn chosen(lanes: &mut Lanes, candidates: &[Candidate]) -> Vec<i64> {
        lanes.choose(candidates).into_iter().map(|candidate| candidate.id).collect()
    }

    #[test]
    fn a_webhook_that_answers_gets_more_at_a_time_and_one_that_fails_one() {
        let mut lanes = Lanes::new(LIMITS);
        let first = chosen(&mut lanes, &due(1, 0..20));
        assert_eq!(first.len(), BEGINNING);
        assert_eq!(lanes.saturated(), [1]);
        for id in first {
            lanes.ended(1, id, Some(Verdict::Well));
        }
        let more = chosen(&mut lanes, &due(1, 20..40));
        assert_eq!(more.len(), LIMITS.per_webhook);
        for id in more {
            lanes.ended(1, id, Some(Verdict::Ill));
        }
        assert_eq!(chosen(&mut lanes, &due(1, 40..60)), [40]);
        lanes.ended(1, 40, Some(Verdict::Well));
        assert_eq!(chosen(&mut lanes, &due(1, 60..80)).len(), 2);
    }

    #[test]
    fn webhooks_take_turns() {
        let mut lanes = Lanes::new(Limits { fast: 5, ..LIMITS });
        let both = [due(1, 0..9), due(2, 10..12)].concat();
        assert_eq!(chosen(&mut lanes, &both), [0, 10, 1, 11, 2]);
        assert!(!lanes.has_room());
    }

    #[test]
    fn what_hangs_makes_way() {
        let mut lanes = Lanes::new(Limits { fast: 4, slow: 4, per_webhook: 4 });
        let hanging = chosen(&mut lanes, &due(1, 0..9));
        assert!(hanging.len() == 4 && !lanes.has_room());
        for id in &hanging {
            lanes.is_slow(1, *id);
            lanes.is_slow(1, *id);
        }
        assert!(lanes.has_room());
        assert_eq!(chosen(&mut lanes, &due(2, 10..12)), [10, 11], "others go on");
        // Another one that fails finds no room among those that hang, and keeps none from going on.
        lanes.ended(2, 10, Some(Verdict::Ill));
        lanes.ended(2, 11, Some(Verdict::Ill));
        assert!(chosen(&mut lanes, &due(2, 12..14)).is_empty());
        assert_eq!(lanes.saturated().len(), 2);
        for id in hanging {
            lanes.ended(1, id, Some(Verdict::Ill));
        }
        assert_eq!(chosen(&mut lanes, &due(2, 14..16)), [14]);
        assert_eq!((lanes.fast, lanes.slow.len()), (0, 1));
    }

    #[test]
    fn what_was_chosen_and_not_made_takes_no_room() {
        let mut lanes = Lanes::new(LIMITS);
        for id in chosen(&mut lanes, &due(1, 0..4)) {
            lanes.ended(1, id, None);
        }
        assert_eq!((lanes.fast, lanes.choose(&due(1, 4..9)).len()), (0, BEGINNING));
    }
}
