//! The hourly records of usage.

use std::sync::Arc;

use jiff::Timestamp;
use rust_decimal::Decimal;
use uuid::Uuid;

use crate::intervals::{Interval, UsageType, Window};
use crate::runs::{HOUR, Run, Runs};

/// What every record is.
const EVENT_TYPE: &str = "usage";

/// What records say of a part of an interval beside its price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Workspace of the CVM.
    pub workspace_id: i64,
    /// Application of the CVM, 40 hex digits.
    pub app_id: String,
    /// The CVM's identity on its node.
    pub vm_uuid: Uuid,
    /// Members of a JSON object.
    pub what: String,
}

impl From<&Interval> for Arc<Label> {
    fn from(interval: &Interval) -> Self {
        Self::new(Label {
            workspace_id: interval.workspace_id,
            app_id: interval.app_id.clone(),
            vm_uuid: interval.vm_uuid,
            what: interval.what.clone(),
        })
    }
}

/// What a CVM used of one kind in one hour. There is one for each CVM, usage type and hour with a whole minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The CVM.
    pub cvm_id: i64,
    /// Its identity on its node.
    pub vm_uuid: Uuid,
    /// Its workspace.
    pub workspace_id: i64,
    /// Its application, 40 hex digits.
    pub app_id: String,
    /// What was used.
    pub usage_type: UsageType,
    /// Number of the hour, counted from the Unix epoch.
    pub hour: i64,
    /// First minute that was used, counted from the Unix epoch.
    pub first_minute: i64,
    /// The minute after the last one.
    pub end_minute: i64,
    /// Minutes between these that were used, 1 to 60.
    pub minutes: i64,
    /// What they cost.
    pub cost: Decimal,
    /// JSON object with the member `parts`: what was used for how many minutes at which rate.
    pub details: String,
}

impl Record {
    /// What happened: always the same.
    #[must_use]
    pub const fn event_type(&self) -> &'static str {
        EVENT_TYPE
    }

    /// Names this record for ever: importing it again changes nothing.
    #[must_use]
    pub fn billing_key(&self) -> String {
        format!("{}:{}:{}", self.vm_uuid, self.usage_type, self.billing_hour())
    }

    /// The hour, such as `2026-11-22T05:00:00Z`.
    #[must_use]
    pub fn billing_hour(&self) -> String {
        moment(self.hour * HOUR).to_string()
    }

    /// Its day, such as `2026-11-22`.
    #[must_use]
    pub fn billing_day(&self) -> String {
        moment(self.hour * HOUR).strftime("%Y-%m-%d").to_string()
    }

    /// When the first minute began.
    #[must_use]
    pub fn billing_start(&self) -> Timestamp {
        moment(self.first_minute)
    }

    /// When the last minute ended.
    #[must_use]
    pub fn billing_end(&self) -> Timestamp {
        moment(self.end_minute)
    }
}

fn moment(minute: i64) -> Timestamp {
    Timestamp::from_second(minute.saturating_mul(60)).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Run<Arc<Label>> {
    /// The record of one of its hours; `None` if the hour is none of its.
    #[must_use]
    pub fn record(&self, hour: i64) -> Option<Record> {
        let is_last = hour == self.hour + self.hours - 1;
        if hour < self.hour || hour > self.hour + self.hours - 1 {
            return None;
        }
        let label = &self.parts.first()?.what;
        Some(Record {
            cvm_id: self.cvm_id,
            vm_uuid: label.vm_uuid,
            workspace_id: label.workspace_id,
            app_id: label.app_id.clone(),
            usage_type: self.usage_type,
            hour,
            first_minute: hour * HOUR + if hour == self.hour { self.begins_at } else { 0 },
            end_minute: hour * HOUR + if is_last { self.ends_at } else { HOUR },
            minutes: self.minutes(),
            cost: self.cost_of_hour(),
            details: self.details(),
        })
    }

    /// Records of all its hours, oldest first.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        (self.hour..self.hour + self.hours).filter_map(|hour| self.record(hour))
    }

    fn details(&self) -> String {
        let parts = self.parts.iter().map(|part| {
            let separator = if part.what.what.is_empty() { "" } else { "," };
            let (minutes, rate) = (part.minutes, part.rate.normalize());
            format!("{{\"minutes\":{minutes},\"rate_per_hour\":\"{rate}\"{separator}{}}}", part.what.what)
        });
        format!("{{\"parts\":[{}]}}", parts.collect::<Vec<_>>().join(","))
    }
}

/// All records of intervals that come ordered by CVM, usage type and beginning, in that order, one after the other:
/// for tables that are longer than the memory.
#[derive(Debug)]
pub struct Records(Runs<Arc<Label>>);

impl Records {
    /// Of what lies in a window, as far as time has come.
    #[must_use]
    pub const fn new(window: Window, now_ms: i64) -> Self {
        Self(Runs::new(window, now_ms))
    }

    /// Takes the next interval; passes on what is complete, each to be read with [`Run::records`].
    pub fn push(&mut self, interval: &Interval, complete: impl FnMut(Run<Arc<Label>>)) {
        self.0.push(&interval.span, &interval.into(), complete);
    }

    /// Passes on what is left.
    pub fn finish(self, complete: impl FnOnce(Run<Arc<Label>>)) {
        self.0.finish(complete);
    }
}
