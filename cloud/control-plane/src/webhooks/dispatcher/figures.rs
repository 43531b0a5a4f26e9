//! What the dispatcher of this process did, for `/metrics`.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::{AttemptResult, Backlog};

/// Counts since the process began.
#[derive(Debug, Default)]
pub struct Figures {
    succeeded: AtomicU64,
    failed: AtomicU64,
    interrupted: AtomicU64,
    given_up: AtomicU64,
}

impl Figures {
    pub(super) fn count(&self, results: &[AttemptResult]) {
        for result in results {
            let which = if result.outcome == "success" { &self.succeeded } else { &self.failed };
            which.fetch_add(1, Ordering::Relaxed);
            if result.status == "failed" {
                self.given_up.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn count_interrupted(&self, count: usize) {
        self.interrupted.fetch_add(u64::try_from(count).unwrap_or_default(), Ordering::Relaxed);
    }

    /// As Prometheus reads it.
    pub(crate) fn text(&self, backlog: Backlog, now_ms: i64) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (succeeded, failed, interrupted) = (of(&self.succeeded), of(&self.failed), of(&self.interrupted));
        let mut text = String::from(
            "# HELP cloister_webhook_attempts_total Requests to webhooks.\n\
             # TYPE cloister_webhook_attempts_total counter\n",
        );
        for (result, count) in [("success", succeeded), ("failed", failed), ("interrupted", interrupted)] {
            let _ = writeln!(text, "cloister_webhook_attempts_total{{result=\"{result}\"}} {count}");
        }
        text.push_str(
            "# HELP cloister_webhook_deliveries_total Deliveries that ended.\n\
             # TYPE cloister_webhook_deliveries_total counter\n",
        );
        for (result, count) in [("success", succeeded), ("failed", of(&self.given_up))] {
            let _ = writeln!(text, "cloister_webhook_deliveries_total{{result=\"{result}\"}} {count}");
        }
        let age = backlog.oldest_ms.map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms).max(0) / 1000);
        let count = backlog.count;
        let _ = write!(
            text,
            "# HELP cloister_webhook_backlog Deliveries that did not end.\n\
             # TYPE cloister_webhook_backlog gauge\ncloister_webhook_backlog {count}\n\
             # HELP cloister_webhook_backlog_oldest_seconds Age of the oldest of them.\n\
             # TYPE cloister_webhook_backlog_oldest_seconds gauge\n\
             cloister_webhook_backlog_oldest_seconds {age}\n"
        );
        text
    }
}
