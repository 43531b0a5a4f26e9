//! Statements: how much was used in a window, what it costs, and a page of its records, newest first.
//!
//! A year of records is never made. The first look at the spans counts records by the hour and adds up costs; the
//! second one makes those records that the page shows.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use rust_decimal::Decimal;

use crate::intervals::{Interval, Span, Window};
use crate::records::{Label, Record};
use crate::runs::{HOUR, Run, Runs};

/// A page of usage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statement {
    /// Records of the page, newest hour first; within an hour by CVM and usage type.
    pub records: Vec<Record>,
    /// How many records the window has.
    pub total: u64,
    /// What all of them cost.
    pub total_cost: Decimal,
}

/// Counts and adds up spans that come ordered by CVM, usage type and beginning.
#[derive(Debug)]
pub struct Tally {
    runs: Runs<()>,
    sums: Sums,
}

#[derive(Debug, Default)]
struct Sums {
    /// By how much the number of records of an hour differs from the one of the hour before.
    steps: BTreeMap<i64, i64>,
    total: u64,
    cost: Decimal,
}

impl Sums {
    fn add(&mut self, run: &Run<()>) {
        *self.steps.entry(run.hour).or_default() += 1;
        *self.steps.entry(run.hour + run.hours).or_default() -= 1;
        self.total += run.hours.unsigned_abs();
        self.cost = self.cost.saturating_add(run.cost());
    }
}

impl Tally {
    /// Of what lies in a window, as far as time has come.
    #[must_use]
    pub fn new(window: Window, now_ms: i64) -> Self {
        Self { runs: Runs::new(window, now_ms), sums: Sums::default() }
    }

    /// Takes the next span.
    pub fn add(&mut self, span: &Span) {
        self.runs.push(span, &(), |run| self.sums.add(&run));
    }

    /// The totals, and which records a page holds.
    #[must_use]
    pub fn page(mut self, window: Window, now_ms: i64, limit: usize, offset: u64) -> Page {
        self.runs.finish(|run| self.sums.add(&run));
        let Sums { steps, total, cost } = self.sums;
        let places = places(&steps, offset, u64::try_from(limit).unwrap_or(u64::MAX));
        let narrow = match (places.first_key_value(), places.last_key_value()) {
            (Some((first, _)), Some((last, _))) => {
                let hour_ms = HOUR * 60_000;
                Window { start_ms: first * hour_ms, end_ms: (last + 1) * hour_ms }.within(window)
            }
            _ => Window { start_ms: 0, end_ms: 0 },
        };
        Page {
            runs: Runs::new(narrow, now_ms),
            window: narrow,
            shown: Shown { places, records: Vec::new() },
            total,
            cost,
        }
    }

    /// What everything costs.
    #[must_use]
    pub fn cost(mut self) -> Decimal {
        self.runs.finish(|run| self.sums.add(&run));
        self.sums.cost
    }
}

/// Which records of an hour are shown: places in the order of CVMs and usage types.
#[derive(Debug)]
struct Places {
    shown: RangeInclusive<u64>,
    /// Records of the hour that came by.
    seen: u64,
}

/// The hours of a page, and what is shown of each.
fn places(steps: &BTreeMap<i64, i64>, offset: u64, limit: u64) -> BTreeMap<i64, Places> {
    let (mut hours, mut skip, mut left) = (BTreeMap::new(), offset, limit);
    let mut count: i64 = 0;
    // From the end: between two steps all hours have as many records.
    let mut later: Option<i64> = None;
    for (hour, step) in steps.iter().rev() {
        if let Some(end) = later {
            let each = count.unsigned_abs();
            // Whole hours that are left out are not visited.
            if let Some(skipped) = skip.checked_div(each) {
                let skipped = skipped.min((end - hour).unsigned_abs());
                skip -= skipped * each;
                let mut at = end - i64::try_from(skipped).unwrap_or(i64::MAX);
                while at > *hour && left > 0 {
                    at -= 1;
                    let taken = (each - skip).min(left);
                    hours.insert(at, Places { shown: skip..=skip + taken - 1, seen: 0 });
                    (skip, left) = (0, left - taken);
                }
            }
        }
        if left == 0 {
            break;
        }
        count -= step;
        later = Some(*hour);
    }
    hours
}

#[derive(Debug)]
struct Shown {
    places: BTreeMap<i64, Places>,
    records: Vec<(u64, Record)>,
}

impl Shown {
    fn add(&mut self, run: &Run<Arc<Label>>) {
        for (hour, places) in self.places.range_mut(run.hour..run.hour + run.hours) {
            let place = places.seen;
            places.seen += 1;
            if places.shown.contains(&place)
                && let Some(record) = run.record(*hour)
            {
                self.records.push((place, record));
            }
        }
    }
}

/// Makes the records of a page from intervals that come once more in the same order.
#[derive(Debug)]
pub struct Page {
    runs: Runs<Arc<Label>>,
    window: Window,
    shown: Shown,
    total: u64,
    cost: Decimal,
}

impl Page {
    /// The time that the page is about: intervals outside it need not come.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Takes the next interval.
    pub fn add(&mut self, interval: &Interval) {
        self.runs.push(&interval.span, &interval.into(), |run| self.shown.add(&run));
    }

    /// The page.
    #[must_use]
    pub fn finish(mut self) -> Statement {
        self.runs.finish(|run| self.shown.add(&run));
        let mut records = self.shown.records;
        records.sort_by_key(|(place, record)| (-record.hour, *place));
        Statement {
            records: records.into_iter().map(|(_, record)| record).collect(),
            total: self.total,
            total_cost: self.cost,
        }
    }
}

/// A page of the records of intervals that are at hand, in any order.
#[must_use]
pub fn statement(
    intervals: &[Interval],
    window: Window,
    now_ms: i64,
    limit: usize,
    offset: u64,
) -> Statement {
    let mut sorted: Vec<&Interval> = intervals.iter().collect();
    sorted.sort_by_key(|interval| {
        (&interval.app_id, interval.span.cvm_id, interval.span.usage_type, interval.span.from_ms)
    });
    let mut tally = Tally::new(window, now_ms);
    for interval in &sorted {
        tally.add(&interval.span);
    }
    let mut page = tally.page(window, now_ms, limit, offset);
    for interval in &sorted {
        page.add(interval);
    }
    page.finish()
}
