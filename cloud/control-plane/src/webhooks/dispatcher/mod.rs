//! Delivers: takes what is due, makes the requests, records what came of them. Several processes may share the work.
//!
//! ```text
//! queue ──take (one commit for many)──▶ attempts ──▶ requests ──▶ results ──record (one commit for many)──▶ queue
//! ```
//!
//! Every attempt is written before its request is made. A process that dies leaves attempts whose leases run out;
//! they are recorded as interrupted and their deliveries are due again: a receiver may be told twice, and is never
//! not told.

mod attempt;
mod figures;
mod lanes;
mod request;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, warn};
use url::Url;

pub use self::figures::Figures;
pub use self::lanes::Limits;
use self::lanes::{Lanes, Verdict};
use super::post::Post;
use super::schedule::TIMEOUT;
use super::secrets::Secrets;
use crate::clock::Clock;
use crate::store::{AttemptResult, Store, StoreError, Stretch, TakenDelivery};

/// How long a delivery belongs to whoever took it: well above the limit of an attempt.
const LEASE_MS: i64 = 60_000;
/// How often the queue is looked at although nobody says that there is something.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What happens within this time is taken, or recorded, together.
const GATHER: Duration = Duration::from_millis(2);
/// Webhooks that are looked at in one transaction.
const STRETCH: i64 = 128;
/// Leases that ran out, in one transaction.
const BATCH: i64 = 500;
/// Results that are recorded together.
const RECORDED_TOGETHER: usize = 512;
/// How long a database that refuses is left alone.
const RECORD_AGAIN: Duration = Duration::from_millis(500);

/// A moment in the life of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// It is written; its request is not made.
    Taken,
    /// The request has ended; nothing is recorded.
    Answered,
    /// What came of it is recorded.
    Recorded,
}

/// Called at every moment; a crash test ends the process in it.
pub type Observer = Arc<dyn Fn(Moment) + Send + Sync>;

/// What a dispatcher works with.
#[derive(Clone)]
pub struct DispatcherOptions {
    /// The queue.
    pub store: Store,
    /// What makes the requests.
    pub post: Arc<dyn Post>,
    /// What opens the secrets of webhooks.
    pub secrets: Arc<Secrets>,
    /// The time.
    pub clock: Clock,
    /// What commit tokens are made with.
    pub token_key: [u8; 32],
    /// Base URL of the API as clients see it.
    pub public_url: Url,
    /// Requests at the same time.
    pub limits: Limits,
    /// What it does is counted here.
    pub figures: Arc<Figures>,
    /// Watches attempts.
    pub observer: Option<Observer>,
}

/// Delivers until it is stopped.
pub struct Dispatcher {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Dispatcher {
    /// Starts to deliver.
    #[must_use]
    pub fn start(options: DispatcherOptions) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(Arc::new(Shared { options }).run(stop.clone()));
        Self { stop, task }
    }

    /// Ends like a process that is killed: nothing is waited for, and nothing is recorded.
    #[cfg(test)]
    async fn die(self) {
        self.task.abort();
        drop(self.task.await);
    }

    /// Begins nothing any more, and returns when what is under way has ended and is recorded.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            error!(%error, "the dispatcher failed");
        }
    }
}

struct Shared {
    options: DispatcherOptions,
}

/// What an attempt tells the dispatcher.
#[derive(Clone, Copy)]
enum Note {
    IsSlow { webhook_id: i64, delivery: i64 },
    Ended { webhook_id: i64, delivery: i64, verdict: Verdict },
}

/// What is under way, and how it is heard of.
struct UnderWay {
    lanes: Lanes,
    tasks: JoinSet<()>,
    notes: mpsc::Receiver<Note>,
    tell: mpsc::Sender<Note>,
    results: mpsc::Sender<AttemptResult>,
    /// Webhooks up to this id had their turn.
    cursor: i64,
}

impl UnderWay {
    fn hear(&mut self, note: Note) {
        match note {
            Note::IsSlow { webhook_id, delivery } => self.lanes.is_slow(webhook_id, delivery),
            Note::Ended { webhook_id, delivery, verdict } => {
                self.lanes.ended(webhook_id, delivery, Some(verdict));
            }
        }
    }

    fn hear_all(&mut self) {
        while let Ok(note) = self.notes.try_recv() {
            self.hear(note);
        }
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended {
                error!(%error, "an attempt failed in this service");
            }
        }
    }
}

impl Shared {
    async fn run(self: Arc<Self>, stop: CancellationToken) {
        let store = &self.options.store;
        if let Err(error) = store.interrupt_attempts_of_the_dead(self.options.clock.now_ms()).await {
            // Their leases run out by themselves.
            warn!(error = &error as &dyn std::error::Error, "cannot look for interrupted attempts");
        }
        let (results, to_record) = mpsc::channel(RECORDED_TOGETHER);
        let recorder = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&self).record(to_record)));
        let (tell, notes) = mpsc::channel(RECORDED_TOGETHER);
        let lanes = Lanes::new(self.options.limits);
        let mut under_way = UnderWay { lanes, tasks: JoinSet::new(), notes, tell, results, cursor: 0 };
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.dispatch(&mut under_way) => {}
        }
        let UnderWay { mut tasks, mut notes, tell, results, .. } = under_way;
        drop((tell, results));
        let ended = async {
            // They tell until they end.
            while notes.recv().await.is_some() {}
            while tasks.join_next().await.is_some() {}
            recorder.await
        };
        // Longer than an attempt may take. What is not recorded by then is recorded as interrupted.
        match tokio::time::timeout(TIMEOUT * 2, ended).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => error!(%error, "the recorder of webhooks failed"),
            Err(_) => warn!("attempts were left under way"),
        }
    }

    /// Takes and begins what is due, for ever.
    async fn dispatch(self: &Arc<Self>, under_way: &mut UnderWay) {
        let store = &self.options.store;
        let mut looked = Instant::now();
        loop {
            under_way.hear_all();
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                self.interrupt().await;
            }
            match self.begin_due(under_way).await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => warn!(error = &error as &dyn std::error::Error, "cannot take deliveries"),
            }
            let UnderWay { notes, lanes, .. } = &mut *under_way;
            let note = tokio::select! {
                note = notes.recv() => note,
                // Without room there is nothing to look for.
                () = store.deliveries_wanted(), if lanes.has_room() => None,
                () = tokio::time::sleep(LOOK_EVERY) => None,
            };
            if let Some(note) = note {
                under_way.hear(note);
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Begins what is due from where the last look ended; whether there may be more at once.
    async fn begin_due(self: &Arc<Self>, under_way: &mut UnderWay) -> Result<bool, StoreError> {
        let mut more = under_way.cursor != 0;
        while under_way.lanes.has_room() {
            let taken = self.take(under_way).await?;
            more |= !taken.is_empty();
            for delivery in taken {
                self.begin(under_way, delivery);
            }
            if under_way.cursor == 0 {
                return Ok(more);
            }
            under_way.hear_all();
        }
        Ok(false)
    }

    async fn take(&self, under_way: &mut UnderWay) -> Result<Vec<TakenDelivery>, StoreError> {
        let (store, now_ms) = (&self.options.store, self.options.clock.now_ms());
        let UnderWay { lanes, cursor, .. } = under_way;
        let saturated = lanes.saturated();
        let stretch = Stretch {
            after: *cursor,
            webhooks: STRETCH,
            of_each: i64::try_from(lanes.per_webhook()).unwrap_or(i64::MAX),
            without: &saturated,
            now_ms,
            lease_until_ms: now_ms.saturating_add(LEASE_MS),
        };
        let mut chosen = Vec::new();
        let taken = store
            .take_deliveries(&stretch, |candidates| {
                chosen = lanes.choose(candidates);
                chosen.iter().map(|candidate| candidate.id).collect()
            })
            .await;
        let deliveries = taken.as_ref().map(|taken| taken.deliveries.as_slice()).unwrap_or_default();
        let begun: HashSet<_> = deliveries.iter().map(|taken| taken.id).collect();
        for left in chosen.iter().filter(|chosen| !begun.contains(&chosen.id)) {
            lanes.ended(left.webhook_id, left.id, None);
        }
        let taken = taken?;
        *cursor = taken.next_after.unwrap_or_default();
        Ok(taken.deliveries)
    }

    fn begin(self: &Arc<Self>, under_way: &mut UnderWay, taken: TakenDelivery) {
        let (shared, tell, results) = (Arc::clone(self), under_way.tell.clone(), under_way.results.clone());
        under_way.tasks.spawn(async move {
            let is_slow = async |note| {
                let _ = tell.send(note).await;
            };
            let made = shared.attempt(&taken, is_slow).await;
            let (webhook_id, delivery) = (taken.webhook_id, taken.id);
            // Nobody listens only where the dispatcher was left alone in its end.
            drop(results.send(made.result).await);
            let _ = tell.send(Note::Ended { webhook_id, delivery, verdict: made.verdict }).await;
        });
    }

    /// Records results as they come, those that wait together, until nobody makes any more.
    async fn record(self: Arc<Self>, mut results: mpsc::Receiver<AttemptResult>) {
        let (store, clock) = (&self.options.store, &self.options.clock);
        let mut batch = Vec::new();
        while results.recv_many(&mut batch, RECORDED_TOGETHER).await > 0 {
            while let Err(error) = store.record_attempts(&batch, clock.now_ms()).await {
                warn!(error = &error as &dyn std::error::Error, "cannot record attempts");
                tokio::time::sleep(RECORD_AGAIN).await;
            }
            self.options.figures.count(&batch);
            batch.clear();
            self.reached(Moment::Recorded);
        }
    }

    async fn interrupt(&self) {
        let now_ms = self.options.clock.now_ms();
        match self.options.store.interrupt_attempts(now_ms, BATCH, now_ms).await {
            Ok(count) => self.options.figures.count_interrupted(count),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "cannot look for interrupted attempts");
            }
        }
    }

    fn reached(&self, moment: Moment) {
        if let Some(observer) = &self.options.observer {
            observer(moment);
        }
    }
}
