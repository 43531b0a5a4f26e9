//! Figures for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use axum::extract::State;
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use parking_lot::Mutex;

use super::Api;
use super::auth::Admin;
use super::error::ApiResult;
use crate::fleet::NodeStatus;

/// Requests by method, route and status. Bounded: routes and statuses are few, odd methods count as one.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<BTreeMap<(&'static str, String, u16), Figures>>);

#[derive(Default, Clone, Copy)]
struct Figures {
    requests: u64,
    total: Duration,
}

impl Metrics {
    pub(crate) fn count(&self, method: &Method, route: &str, status: u16, elapsed: Duration) {
        let method = match method.as_str() {
            "GET" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "other",
        };
        let mut all = self.0.lock();
        let figures = all.entry((method, route.to_owned(), status)).or_default();
        figures.requests += 1;
        figures.total += elapsed;
    }

    fn text(&self) -> String {
        let all = self.0.lock().clone();
        let mut text = String::from(
            "# HELP cloister_http_requests_total Requests answered.\n\
             # TYPE cloister_http_requests_total counter\n",
        );
        let labels = |(method, route, status): &(&str, String, u16)| {
            format!("{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}}")
        };
        for (key, figures) in &all {
            let _ = writeln!(text, "cloister_http_requests_total{} {}", labels(key), figures.requests);
        }
        text.push_str(
            "# HELP cloister_http_request_seconds_total Time spent until answers began.\n\
             # TYPE cloister_http_request_seconds_total counter\n",
        );
        for (key, figures) in &all {
            let seconds = figures.total.as_secs_f64();
            let _ = writeln!(text, "cloister_http_request_seconds_total{} {seconds:.6}", labels(key));
        }
        text
    }
}

/// `GET /metrics`, for administrators.
pub(crate) async fn metrics(State(api): State<Api>, _: Admin) -> ApiResult<impl IntoResponse> {
    let mut text = api.metrics.text();
    let standings = api.fleet.standings().await?;
    text.push_str("# HELP cloister_nodes Nodes by status.\n# TYPE cloister_nodes gauge\n");
    for status in [NodeStatus::Online, NodeStatus::Offline, NodeStatus::Maintenance] {
        let nodes = standings.iter().filter(|standing| standing.status == status).count();
        let _ = writeln!(text, "cloister_nodes{{status=\"{}\"}} {nodes}", status.as_str());
    }
    let cvms: i64 = standings.iter().map(|standing| standing.node.usage.cvms).sum();
    let _ =
        write!(text, "# HELP cloister_cvms Living CVMs.\n# TYPE cloister_cvms gauge\ncloister_cvms {cvms}\n");
    text.push_str(&api.webhook_figures.text(api.store.webhook_backlog().await?, api.clock.now_ms()));
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route() {
        let metrics = Metrics::default();
        for method in [Method::GET, Method::GET, Method::from_bytes(b"ODD").unwrap()] {
            metrics.count(&method, "/cvms/{cvm_id}", 200, Duration::from_millis(5));
        }
        insta::assert_snapshot!(metrics.text());
    }
}
