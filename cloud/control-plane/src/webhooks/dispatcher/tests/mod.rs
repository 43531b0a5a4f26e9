//! The dispatcher against receivers in memory, on both engines, under a clock that the tests move.

mod delivery;
mod fairness;
mod random;
mod receivers;

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use cloister_webhooks::{EventKind, Secret, verify_public, verify_standard};
use jiff::Timestamp;
use serde_json::json;

use self::receivers::{Receivers, Reply, Request};
use super::*;
use crate::clock::Random;
use crate::store::tests::{Ground, cvm, ground, on_both, on_postgres};
use crate::store::{CvmRow, DeliveryRow, NewWebhook, WebhookChange};
use crate::webhooks::{Emission, Subject, emit};

const START: &str = "2026-09-21T12:00:00Z";
/// Every wait of the schedule is over.
const ALL_WAITS_MS: i64 = 2 * 3600 * 1000;

/// A workspace with CVMs, receivers, and a dispatcher between them.
struct Bench {
    store: Store,
    clock: Clock,
    ground: Ground,
    cvms: Vec<CvmRow>,
    receivers: Arc<Receivers>,
    secrets: Arc<Secrets>,
    limits: Limits,
    dispatcher: Option<Dispatcher>,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new(store: Store) -> Self {
        let mut bench = Self::without_dispatcher(store).await;
        bench.start();
        bench
    }

    async fn without_dispatcher(store: Store) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ground = ground(&store).await;
        let mut cvms = Vec::new();
        for seed in 1..=3 {
            cvms.push(cvm(&store, &ground, seed, &format!("web-{seed}")).await);
        }
        Self {
            clock: Clock::manual(START.parse::<Timestamp>().unwrap()),
            store,
            ground,
            cvms,
            receivers: Arc::default(),
            secrets: Arc::new(Secrets::open(dir.path(), Random).unwrap()),
            limits: Limits::default(),
            dispatcher: None,
            _dir: dir,
        }
    }

    fn start(&mut self) {
        self.dispatcher = Some(Dispatcher::start(DispatcherOptions {
            store: self.store.clone(),
            post: Arc::<Receivers>::clone(&self.receivers),
            secrets: Arc::clone(&self.secrets),
            clock: self.clock.clone(),
            token_key: [5; 32],
            public_url: Url::parse("https://cloud.example.org").unwrap(),
            limits: self.limits,
            figures: Arc::default(),
            observer: None,
        }));
    }

    async fn stop(&mut self) {
        if let Some(dispatcher) = self.dispatcher.take() {
            dispatcher.stop().await;
        }
    }

    /// Ends the dispatcher like a process that is killed, and lets what it held run out.
    async fn die(&mut self) {
        if let Some(dispatcher) = self.dispatcher.take() {
            dispatcher.die().await;
        }
    }

    /// A webhook at a host, for all kinds of events that this is about.
    async fn webhook(&self, host: &str) -> i64 {
        let mut change = self.store.change().await.unwrap();
        let id = change.next_webhook_id().await.unwrap();
        let new = NewWebhook {
            id,
            workspace_id: self.ground.workspace,
            url: &format!("https://{host}/hook"),
            name: None,
            events: r#"["cvm.started","cvm.stopped"]"#,
            sealed_secret: &self.secrets.seal(id, &secret(1), Random).unwrap(),
        };
        change.insert_webhook(&new, self.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        id
    }

    async fn update(&self, id: i64, to: WebhookChange<'_>) {
        let mut change = self.store.change().await.unwrap();
        change.update_webhook(self.ground.workspace, id, &to, self.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
    }

    /// Something happens to a CVM.
    async fn happens(&self, cvm: usize, marker: &str) {
        let emission = Emission {
            workspace_id: self.ground.workspace,
            kind: EventKind::CvmStarted,
            subject: Subject::Cvm(self.cvms[cvm].id),
            operation: None,
            data: json!({ "cvm_name": format!("web-{cvm}"), "marker": marker }),
        };
        let mut change = self.store.change().await.unwrap();
        emit(&mut change, Random, &emission, self.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
    }

    /// Waits until nothing is under way and nothing is due.
    async fn settled(&self) {
        while self.store.deliveries_to_make(self.clock.now_ms()).await > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn advance_ms(&self, by_ms: i64) {
        self.clock.advance_ms(by_ms);
        self.store.wake_dispatcher();
        self.settled().await;
    }

    /// Deliveries of a webhook, first to last.
    async fn deliveries(&self, webhook_id: i64) -> Vec<DeliveryRow> {
        let mut rows = self.store.webhook_deliveries(webhook_id, 10_000, 0).await.unwrap();
        rows.reverse();
        rows
    }

    async fn outcomes(&self, delivery: i64) -> Vec<String> {
        let attempts = self.store.webhook_attempts(delivery).await.unwrap();
        attempts.into_iter().map(|row| row.outcome.unwrap_or_else(|| "under way".to_owned())).collect()
    }
}

fn secret(seed: u8) -> Secret {
    Secret::generate([seed; 32])
}

/// Whether a request is signed with a secret, both ways, at a time.
fn is_signed(request: &Request, secret: &Secret, now_ms: i64) -> bool {
    let headers = as_texts(&request.headers);
    let seconds = now_ms / 1000;
    let public = verify_public(secret, &headers, &request.body, seconds).is_ok();
    assert_eq!(public, verify_standard(secret, &headers, &request.body, seconds).is_ok());
    public
}

fn as_texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &axum::http::HeaderValue| value.to_str().unwrap().to_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
