//! What is stored and answered, against the model.

use cloister_metering::{Interval, Record, UsageType, Window};
use rust_decimal::Decimal;

use super::World;
use crate::metering::tests::{HOUR, MINUTE, START, scope};

impl World {
    pub(super) async fn check(&mut self) {
        let rate: Decimal =
            self.lives.iter().flat_map(|life| life.taps.iter()).map(|(_, tap)| tap.rate()).sum();
        assert_eq!(self.store.usage_rate(scope(&self.ground)).await.unwrap(), rate);
        let intervals = self.intervals().await;
        no_overlap(&intervals);
        let open: Vec<_> = intervals.iter().filter(|interval| interval.span.to_ms.is_none()).collect();
        for life in &self.lives {
            for (usage_type, tap) in life.taps.iter() {
                let is_open = |interval: &&&Interval| {
                    (interval.span.cvm_id, interval.span.usage_type) == (life.id, usage_type)
                };
                assert_eq!(open.iter().filter(is_open).count(), usize::from(tap.is_on()), "{usage_type}");
            }
        }
        let end_ms = self.latest_ms + HOUR;
        for life in &mut self.lives {
            life.taps.off(&UsageType::ALL, end_ms, end_ms);
        }
        let middle_ms = START + (end_ms - START) / 3;
        for window in [
            Window::EVER,
            Window { start_ms: middle_ms, end_ms },
            Window { start_ms: START - HOUR, end_ms: middle_ms },
        ] {
            self.check_window(window, end_ms).await;
        }
    }

    /// Page by page.
    async fn intervals(&self) -> Vec<Interval> {
        let mut all: Vec<Interval> = Vec::new();
        loop {
            let page =
                self.store.usage_intervals(scope(&self.ground), Window::EVER, all.last(), 3).await.unwrap();
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    async fn check_window(&self, window: Window, now_ms: i64) {
        let (from, to) = (window.start_ms.div_euclid(MINUTE), window.end_ms.div_euclid(MINUTE));
        let mut expected = Vec::new();
        for life in &self.lives {
            for (usage_type, tap) in life.taps.iter() {
                for (hour, (minutes, cost)) in tap.hours(from, to) {
                    expected.push((-hour, life.id, usage_type, life.vm_uuid, minutes, cost));
                }
            }
        }
        expected.sort_unstable();
        let scope = scope(&self.ground);
        let mut records: Vec<Record> = Vec::new();
        loop {
            let offset = u64::try_from(records.len()).unwrap();
            let page =
                self.store.usage_statement(scope, window, now_ms, 7 + records.len(), offset).await.unwrap();
            assert_eq!(page.total, u64::try_from(expected.len()).unwrap());
            let cost: Decimal = expected.iter().map(|record| record.5).sum();
            assert_eq!(page.total_cost, cost);
            if page.records.is_empty() {
                assert_eq!(self.store.usage_cost(scope, window, now_ms).await.unwrap(), cost);
                break;
            }
            records.extend(page.records);
        }
        let found: Vec<_> = records
            .iter()
            .map(|record| {
                let Record { hour, cvm_id, usage_type, vm_uuid, minutes, cost, .. } = *record;
                (-hour, cvm_id, usage_type, vm_uuid, minutes, cost)
            })
            .collect();
        assert_eq!(found, expected);
    }
}

/// Intervals of a meter follow each other, and each has a minute.
fn no_overlap(intervals: &[Interval]) {
    for pair in intervals.windows(2) {
        let [before, after] = [&pair[0].span, &pair[1].span];
        if (before.cvm_id, before.usage_type) == (after.cvm_id, after.usage_type) {
            assert!(before.to_ms.unwrap() <= after.from_ms, "{pair:?}");
        }
    }
    for Interval { span, .. } in intervals {
        assert!(span.to_ms.is_none_or(|to_ms| to_ms / MINUTE > span.from_ms / MINUTE), "{span:?}");
    }
}
