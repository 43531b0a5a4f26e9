//! The model: every minute of a meter by itself.

use std::collections::BTreeMap;

use cloister_metering::{UsageType, rounded};
use rust_decimal::Decimal;

use super::MINUTE;

/// What a meter counts: what an hour costs, and of what.
pub(super) type Tariff = (Decimal, String);

/// A meter that is switched on and off.
#[derive(Debug, Default)]
pub(super) struct Tap {
    on: Option<(i64, Tariff)>,
    /// What each minute that was counted costs per hour.
    pub(super) minutes: BTreeMap<i64, Decimal>,
}

impl Tap {
    pub(super) fn is_on(&self) -> bool {
        self.on.is_some()
    }

    pub(super) fn rate(&self) -> Decimal {
        self.on.as_ref().map(|(_, tariff)| tariff.0).unwrap_or_default()
    }

    pub(super) fn switch_on(&mut self, now_ms: i64, tariff: Tariff) {
        if self.on.as_ref().is_some_and(|(_, current)| *current == tariff) {
            return;
        }
        self.switch_off(now_ms, now_ms);
        self.on = Some((now_ms, tariff));
    }

    /// Off since a moment that has passed. Minutes before the last one that was counted are never counted.
    pub(super) fn switch_off(&mut self, since_ms: i64, now_ms: i64) {
        let Some((began_ms, (rate, _))) = self.on.take() else { return };
        let next = self.minutes.last_key_value().map_or(i64::MIN, |(last, _)| last + 1);
        for minute in (began_ms / MINUTE).max(next)..since_ms.min(now_ms) / MINUTE {
            assert!(self.minutes.insert(minute, rate).is_none());
        }
    }

    /// Minutes and cost of each hour in a stretch of minutes.
    pub(super) fn hours(&self, from: i64, to: i64) -> BTreeMap<i64, (i64, Decimal)> {
        let mut by_rate: BTreeMap<(i64, Decimal), i64> = BTreeMap::new();
        for (minute, rate) in self.minutes.iter().filter(|(minute, _)| (from..to).contains(*minute)) {
            *by_rate.entry((minute / 60, *rate)).or_default() += 1;
        }
        let mut hours: BTreeMap<i64, (i64, Decimal)> = BTreeMap::new();
        for ((hour, rate), minutes) in by_rate {
            let (of_hour, cost) = hours.entry(hour).or_default();
            *of_hour += minutes;
            *cost += rounded(rate * Decimal::from(minutes) / Decimal::from(60));
        }
        hours
    }
}

/// The meters of a CVM.
#[derive(Debug, Default)]
pub(super) struct Taps(BTreeMap<UsageType, Tap>);

impl Taps {
    pub(super) fn of(&mut self, usage_type: UsageType) -> &mut Tap {
        self.0.entry(usage_type).or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (UsageType, &Tap)> {
        self.0.iter().map(|(usage_type, tap)| (*usage_type, tap))
    }

    pub(super) fn off(&mut self, only: &[UsageType], since_ms: i64, now_ms: i64) {
        for usage_type in only {
            self.of(*usage_type).switch_off(since_ms, now_ms);
        }
    }
}
