//! Cuts spans of a CVM into hours. Hours that are alike stay together, so that a year costs no more than a day.

use rust_decimal::Decimal;

use crate::intervals::{Span, UsageType, Window};
use crate::prices::rounded;

/// Minutes of an hour.
pub(crate) const HOUR: i64 = 60;

/// Some minutes of an hour at one rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<T> {
    /// What is said of them.
    pub what: T,
    /// What an hour of it costs.
    pub rate: Decimal,
    /// How many.
    pub minutes: i64,
}

/// One hour, or several in a row that are used alike and wholly, of one CVM and one usage type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run<T> {
    /// Whose.
    pub cvm_id: i64,
    /// Of what.
    pub usage_type: UsageType,
    /// Number of the first hour, counted from the Unix epoch.
    pub hour: i64,
    /// How many hours, at least one.
    pub hours: i64,
    /// Minutes of the first hour before the first one that is used.
    pub begins_at: i64,
    /// Minutes of the last hour up to the end of the last one that is used.
    pub ends_at: i64,
    /// What each of the hours is made of.
    pub parts: Vec<Part<T>>,
}

impl<T> Run<T> {
    /// Minutes of each hour that are used.
    #[must_use]
    pub fn minutes(&self) -> i64 {
        self.parts.iter().map(|part| part.minutes).sum()
    }

    /// What each hour costs: minutes of one rate are added before they are rounded, so an hour at one rate costs
    /// that rate, however many parts it has.
    #[must_use]
    pub fn cost_of_hour(&self) -> Decimal {
        let mut cost = Decimal::ZERO;
        for (index, part) in self.parts.iter().enumerate() {
            if self.parts.iter().take(index).any(|earlier| earlier.rate == part.rate) {
                continue;
            }
            let same = self.parts.iter().filter(|other| other.rate == part.rate);
            cost = cost.saturating_add(cost_of(part.rate, same.map(|other| other.minutes).sum()));
        }
        cost
    }

    /// What all its hours cost together.
    #[must_use]
    pub fn cost(&self) -> Decimal {
        self.cost_of_hour().saturating_mul(Decimal::from(self.hours))
    }
}

/// What some minutes of an hour cost.
fn cost_of(rate: Decimal, minutes: i64) -> Decimal {
    if minutes == HOUR {
        return rate;
    }
    let amount = rate.saturating_mul(Decimal::from(minutes)).checked_div(Decimal::from(HOUR));
    rounded(amount.unwrap_or_default())
}

/// Makes runs of spans that come ordered by CVM, usage type and beginning.
#[derive(Debug)]
pub struct Runs<T> {
    window: Window,
    now_ms: i64,
    /// An hour that the next span may add to, and where its last minute ends.
    open: Option<(Run<T>, i64)>,
}

impl<T: Clone + PartialEq> Runs<T> {
    /// Of what lies in a window, as far as time has come.
    #[must_use]
    pub const fn new(window: Window, now_ms: i64) -> Self {
        Self { window, now_ms, open: None }
    }

    /// Takes the next span and passes on what is complete.
    pub fn push(&mut self, span: &Span, what: &T, mut complete: impl FnMut(Run<T>)) {
        let (mut from, to) = span.minutes(self.window, self.now_ms);
        let same = |run: &Run<T>| (run.cvm_id, run.usage_type) == (span.cvm_id, span.usage_type);
        if let Some((run, end)) = &mut self.open
            && same(run)
        {
            // Nothing is ever counted twice, whatever is stored.
            from = from.max(*end);
            if from < to && from.div_euclid(HOUR) == run.hour {
                let until = to.min((run.hour + 1) * HOUR);
                run.extend(what, span.rate, until - from);
                (run.ends_at, *end) = (until - run.hour * HOUR, until);
                from = until;
            }
        }
        if from >= to {
            return;
        }
        if let Some((run, _)) = self.open.take() {
            complete(run);
        }
        let mut first = from.div_euclid(HOUR);
        let last = (to - 1).div_euclid(HOUR);
        if from > first * HOUR && first < last {
            complete(Run::of(span, what, first, (from - first * HOUR, HOUR)));
            first += 1;
        }
        if first < last {
            complete(Run { hours: last - first, ..Run::of(span, what, first, (0, HOUR)) });
            (first, from) = (last, last * HOUR);
        }
        let begins_at = (from - first * HOUR).max(0);
        self.open = Some((Run::of(span, what, first, (begins_at, to - first * HOUR)), to));
    }

    /// Passes on what is left.
    pub fn finish(self, complete: impl FnOnce(Run<T>)) {
        if let Some((run, _)) = self.open {
            complete(run);
        }
    }
}

impl<T: Clone + PartialEq> Run<T> {
    /// Minutes of one hour.
    fn of(span: &Span, what: &T, hour: i64, (begins_at, ends_at): (i64, i64)) -> Self {
        let part = Part { what: what.clone(), rate: span.rate, minutes: ends_at - begins_at };
        let (cvm_id, usage_type) = (span.cvm_id, span.usage_type);
        Self { cvm_id, usage_type, hour, hours: 1, begins_at, ends_at, parts: vec![part] }
    }

    fn extend(&mut self, what: &T, rate: Decimal, minutes: i64) {
        match self.parts.iter_mut().find(|part| part.rate == rate && part.what == *what) {
            Some(part) => part.minutes += minutes,
            None => self.parts.push(Part { what: what.clone(), rate, minutes }),
        }
    }
}
