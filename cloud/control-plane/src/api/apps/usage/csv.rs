//! Usage as a table for spreadsheets, written while it is read: a year of a thousand CVMs does not have to fit
//! into memory.

use std::collections::VecDeque;
use std::fmt::Write as _;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use cloister_app_compose::AppId;
use cloister_management_api::UsageRecord;
use cloister_metering::{Interval, Records, Window};
use futures_util::stream;

use super::wire;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::slots::Slot;
use crate::store::{Store, StoreError, UsageScope};

/// Tables that a workspace may read at the same time.
pub(crate) const MAX_TABLES: usize = 2;
/// Intervals that are read at once.
const AT_ONCE: i64 = 200;
/// Bytes of a piece from which on it is sent.
const PIECE: usize = 64 * 1024;
const HEADER: &str = "instance_id,project_id,team_id,timestamp,event_type,cost,details,usage_type,billing_start,\
     billing_end,duration_minutes,billing_key,billing_hour,billing_day\r\n";

/// What is left of a table.
struct Rest {
    store: Store,
    scope: UsageScope,
    window: Window,
    /// The last interval that was read; `None` before the first.
    last: Option<Interval>,
    read: VecDeque<Interval>,
    is_all_read: bool,
    records: Option<Records>,
    /// Begun, not sent yet.
    text: String,
    _slot: Slot,
}

/// The answer; it goes on while the table is written.
pub(super) fn answer(
    api: &Api,
    app_id: AppId,
    scope: UsageScope,
    window: Window,
    now_ms: i64,
) -> ApiResult<Response> {
    let slot = api.usage_tables.take(scope.workspace_id).ok_or_else(|| {
        let text = format!("the workspace reads {MAX_TABLES} tables already; wait for one to end");
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
    })?;
    let rest = Rest {
        store: api.store.clone(),
        scope,
        window,
        last: None,
        read: VecDeque::new(),
        is_all_read: false,
        records: Some(Records::new(window, now_ms)),
        text: HEADER.to_owned(),
        _slot: slot,
    };
    let pieces = stream::try_unfold(rest, |mut rest| async {
        let piece = rest.piece().await?;
        Ok::<_, StoreError>((!piece.is_empty()).then(|| (Bytes::from(piece), rest)))
    });
    let name = format!("attachment; filename=\"usage-{app_id}.csv\"");
    let headers = [(CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

impl Rest {
    /// The next piece; empty at the end.
    async fn piece(&mut self) -> Result<String, StoreError> {
        while self.text.len() < PIECE && self.records.is_some() {
            self.step().await?;
        }
        Ok(std::mem::take(&mut self.text))
    }

    /// Writes what one more interval completes.
    async fn step(&mut self) -> Result<(), StoreError> {
        if self.read.is_empty() && !self.is_all_read {
            let read =
                self.store.usage_intervals(self.scope, self.window, self.last.as_ref(), AT_ONCE).await?;
            self.is_all_read = i64::try_from(read.len()).unwrap_or(i64::MAX) < AT_ONCE;
            self.last = read.last().cloned().or(self.last.take());
            self.read = read.into();
        }
        let text = &mut self.text;
        match (self.read.pop_front(), &mut self.records) {
            (Some(interval), Some(records)) => {
                records.push(&interval, |run| run.records().for_each(|record| row(text, &wire(&record))));
            }
            (None, records) if self.is_all_read => {
                if let Some(records) = records.take() {
                    records.finish(|run| run.records().for_each(|record| row(text, &wire(&record))));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn row(text: &mut String, record: &UsageRecord) {
    let fields = [
        record.instance_id.clone(),
        record.project_id.to_string(),
        record.team_id.to_string(),
        record.timestamp.to_string(),
        record.event_type.clone(),
        record.cost.to_string(),
        record.details.clone(),
        record.usage_type.clone(),
        record.billing_start.to_string(),
        record.billing_end.to_string(),
        record.duration_minutes.to_string(),
        record.billing_key.clone(),
        record.billing_hour.clone(),
        record.billing_day.clone(),
    ];
    for (index, value) in fields.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        field(text, value);
    }
    text.push_str("\r\n");
}

/// One field (RFC 4180). Spreadsheets calculate what begins like a formula; the apostrophe keeps them from it.
fn field(text: &mut String, value: &str) {
    let is_formula = value.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '|', '%'])
        && value.parse::<rust_decimal::Decimal>().is_err();
    let guard = if is_formula { "'" } else { "" };
    if is_formula || value.contains([',', '"', '\r', '\n']) {
        // Writing to a String does not fail.
        let _ = write!(text, "\"{guard}{}\"", value.replace('"', "\"\""));
    } else {
        text.push_str(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: &str) -> String {
        let mut text = String::new();
        field(&mut text, value);
        text
    }

    #[test]
    fn nothing_begins_like_a_formula() {
        for (value, expected) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "\"'=1+1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\t=1", "\"'\t=1\""),
            ("-0.5", "-0.5"),
            ("-cmd|x", "\"'-cmd|x\""),
            ("", ""),
        ] {
            assert_eq!(written(value), expected);
        }
    }

    proptest! {
        #[test]
        fn a_field_is_read_back(value in "[ -~\r\n\täöü]{0,40}") {
            let text = written(&value);
            let inner = text.strip_prefix('"').map_or(text.clone(), |rest| {
                rest.strip_suffix('"').unwrap().replace("\"\"", "\"")
            });
            let guarded = format!("'{value}");
            prop_assert!(inner == value || inner == guarded);
            prop_assert!(!text.starts_with(['=', '+', '@', '\t', '\r']));
        }
    }
}
