//! What the control plane said lately about where apps run on other nodes.
//!
//! An answer is used for a moment without asking again; an old one that still names a ready replica is used
//! while the question is asked anew, and for as long as the control plane does not answer. One question per
//! identifier is under way at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cloister_node_api::VmRoute;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::peers::Peers;

/// How long an answer counts as new.
const FRESH: Duration = Duration::from_secs(2);
/// How long one that names nothing, or a failure, does.
const FRESH_IF_NOTHING: Duration = Duration::from_secs(1);
/// Longest time for a question, waiting for its turn included.
const LONGEST_QUESTION: Duration = Duration::from_secs(5);
/// Questions that are under way at once.
const MAX_QUESTIONS: usize = 32;
/// Identifiers about which something is remembered.
const MAX_ENTRIES: usize = 4096;
/// How long an answer is remembered that nobody uses.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);

/// Replicas on other nodes.
#[derive(Debug, Clone)]
pub(super) struct Elsewhere {
    /// Those that the control plane named last, ready or not.
    pub(super) routes: Arc<[VmRoute]>,
    /// It was asked and it answered: what it does not name is nowhere.
    pub(super) is_certain: bool,
}

impl Elsewhere {
    fn unknown() -> Self {
        Self { routes: Arc::default(), is_certain: false }
    }

    fn has_ready(&self) -> bool {
        self.routes.iter().any(|route| route.ready)
    }
}

/// The answers.
pub(super) struct RouteCache {
    peers: Arc<dyn Peers>,
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    questions: Arc<Semaphore>,
    tasks: TaskTracker,
    abort: CancellationToken,
}

struct Entry {
    answer: watch::Sender<Answer>,
    /// One permit: the right to ask.
    asking: Arc<Semaphore>,
}

struct Answer {
    elsewhere: Elsewhere,
    fresh_until: Instant,
    used_at: Instant,
}

impl Answer {
    /// Whether forgetting it would cost anybody anything.
    fn is_of_use(&self, now: Instant) -> bool {
        now < self.fresh_until || (self.elsewhere.has_ready() && now < self.used_at + FORGOTTEN_AFTER)
    }
}

impl RouteCache {
    pub(super) fn new(peers: Arc<dyn Peers>, tasks: TaskTracker, abort: CancellationToken) -> Self {
        let questions = Arc::new(Semaphore::new(MAX_QUESTIONS));
        Self { peers, entries: Mutex::default(), questions, tasks, abort }
    }

    /// The replicas of an identifier on other nodes. Without `may_wait` the answer is what is known now.
    pub(super) async fn lookup(&self, id: &str, may_wait: bool) -> Elsewhere {
        let Some(entry) = self.entry(id) else { return Elsewhere::unknown() };
        let mut answers = entry.answer.subscribe();
        let (known, is_fresh) = {
            let answer = answers.borrow_and_update();
            (answer.elsewhere.clone(), Instant::now() < answer.fresh_until)
        };
        if is_fresh {
            return known;
        }
        self.ask(id, &entry);
        if !may_wait || known.has_ready() {
            return known;
        }
        // The question has a limit of its own; this one is for a question that died.
        let _ = timeout(2 * LONGEST_QUESTION, answers.changed()).await;
        let answer = answers.borrow();
        answer.elsewhere.clone()
    }

    /// What is remembered of an identifier; `None` when no more can be.
    fn entry(&self, id: &str) -> Option<Arc<Entry>> {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(id) {
            entry.answer.send_if_modified(|answer| {
                answer.used_at = now;
                false
            });
            return Some(Arc::clone(entry));
        }
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, entry| Arc::strong_count(entry) > 1 || entry.answer.borrow().is_of_use(now));
        }
        if entries.len() >= MAX_ENTRIES {
            return None;
        }
        let answer = Answer { elsewhere: Elsewhere::unknown(), fresh_until: now, used_at: now };
        let entry =
            Arc::new(Entry { answer: watch::Sender::new(answer), asking: Arc::new(Semaphore::new(1)) });
        entries.insert(id.to_owned(), Arc::clone(&entry));
        Some(entry)
    }

    /// Asks the control plane in the background, unless somebody does.
    fn ask(&self, id: &str, entry: &Arc<Entry>) {
        let Ok(right) = Arc::clone(&entry.asking).try_acquire_owned() else { return };
        let (entry, peers, questions) =
            (Arc::clone(entry), Arc::clone(&self.peers), Arc::clone(&self.questions));
        let id = id.to_owned();
        let question = async move {
            let asked = timeout(LONGEST_QUESTION, async {
                let _turn = questions.acquire_owned().await;
                peers.routes(&id).await
            });
            match asked.await {
                Ok(Ok(routes)) => entry.learn(routes.into()),
                Ok(Err(error)) => {
                    tracing::debug!(id, %error, "the control plane did not say where an app runs");
                    entry.learn_nothing();
                }
                Err(_) => entry.learn_nothing(),
            }
            drop(right);
        };
        self.tasks.spawn(self.abort.clone().run_until_cancelled_owned(question));
    }
}

impl Entry {
    fn learn(&self, routes: Arc<[VmRoute]>) {
        let fresh = if routes.is_empty() { FRESH_IF_NOTHING } else { FRESH };
        self.answer.send_modify(|answer| {
            answer.elsewhere = Elsewhere { routes, is_certain: true };
            answer.fresh_until = Instant::now() + fresh;
        });
    }

    /// What is known stays, and nobody asks again for a moment.
    fn learn_nothing(&self) {
        self.answer.send_modify(|answer| {
            answer.elsewhere.is_certain = false;
            answer.fresh_until = Instant::now() + FRESH_IF_NOTHING;
        });
    }
}
