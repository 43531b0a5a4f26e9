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
use uuid::Uuid;

use crate::peers::Peers;

/// How long an answer counts as new.
const FRESH: Duration = Duration::from_secs(2);
/// How long one that names nothing, or a failure, does.
const FRESH_IF_NOTHING: Duration = Duration::from_secs(1);
/// Longest time for a question, waiting for its turn included.
const LONGEST_QUESTION: Duration = Duration::from_secs(5);
/// Questions about apps that are known that are under way at once.
const MAX_RENEWALS: usize = 16;
/// Questions about names of which nothing is known. Anybody can make names up: they wait for each other and for
/// nobody else.
const MAX_FIRST_QUESTIONS: usize = 8;
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

    /// Whether the control plane named a VM, of this node or another.
    pub(super) fn names(&self, vm: Uuid) -> bool {
        self.routes.iter().any(|route| route.vm_uuid == vm)
    }

    fn has_ready(&self) -> bool {
        self.routes.iter().any(|route| route.ready)
    }
}

/// The answers.
pub(super) struct RouteCache {
    peers: Arc<dyn Peers>,
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    renewals: Arc<Semaphore>,
    first_questions: Arc<Semaphore>,
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
        let renewals = Arc::new(Semaphore::new(MAX_RENEWALS));
        let first_questions = Arc::new(Semaphore::new(MAX_FIRST_QUESTIONS));
        Self { peers, entries: Mutex::default(), renewals, first_questions, tasks, abort }
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
        self.ask(id, &entry, if known.routes.is_empty() { &self.first_questions } else { &self.renewals });
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

    /// Asks the control plane in the background when it is its turn, unless somebody does.
    fn ask(&self, id: &str, entry: &Arc<Entry>, turns: &Arc<Semaphore>) {
        let Ok(right) = Arc::clone(&entry.asking).try_acquire_owned() else { return };
        let (entry, peers, turns) = (Arc::clone(entry), Arc::clone(&self.peers), Arc::clone(turns));
        let id = id.to_owned();
        let question = async move {
            let asked = timeout(LONGEST_QUESTION, async {
                let _turn = turns.acquire_owned().await;
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

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::FutureExt;
    use futures_util::future::{BoxFuture, join_all};
    use tokio::sync::mpsc;
    use tokio::time::advance;

    use super::*;
    use crate::CallError;
    use crate::peers::Tunnel;

    const A_MOMENT: Duration = Duration::from_millis(1);

    /// A control plane that notes what it is asked and answers what it was told to.
    struct Oracle {
        asked: mpsc::UnboundedSender<String>,
        says: Arc<Mutex<Option<Vec<VmRoute>>>>,
        takes: Duration,
    }

    impl Peers for Oracle {
        fn routes(&self, id: &str) -> BoxFuture<'static, Result<Vec<VmRoute>, CallError>> {
            self.asked.send(id.to_owned()).unwrap();
            let (says, takes) = (Arc::clone(&self.says), self.takes);
            async move {
                tokio::time::sleep(takes).await;
                says.lock().unwrap().clone().ok_or(CallError::TimedOut)
            }
            .boxed()
        }

        fn connect(&self, _: &VmRoute, _: u16) -> BoxFuture<'static, io::Result<Tunnel>> {
            unreachable!("nothing connects here")
        }
    }

    struct World {
        cache: Arc<RouteCache>,
        says: Arc<Mutex<Option<Vec<VmRoute>>>>,
        asked: mpsc::UnboundedReceiver<String>,
    }

    fn world(takes: Duration) -> World {
        let (asked, questions) = mpsc::unbounded_channel();
        let says = Arc::new(Mutex::new(Some(Vec::new())));
        let oracle = Arc::new(Oracle { asked, says: Arc::clone(&says), takes });
        let cache = Arc::new(RouteCache::new(oracle, TaskTracker::new(), CancellationToken::new()));
        World { cache, says, asked: questions }
    }

    impl World {
        fn say(&self, says: Option<bool>) {
            let route = |ready| {
                vec![VmRoute {
                    vm_uuid: Uuid::nil(),
                    node: "b".to_owned(),
                    endpoint: "b:1".to_owned(),
                    ready,
                }]
            };
            *self.says.lock().unwrap() = says.map(route);
        }

        fn say_nowhere(&self) {
            *self.says.lock().unwrap() = Some(Vec::new());
        }

        /// Whether each replica is ready, and whether the answer is certain.
        async fn learn(&self, id: &str) -> (Vec<bool>, bool) {
            let elsewhere = self.cache.lookup(id, true).await;
            (elsewhere.routes.iter().map(|route| route.ready).collect(), elsewhere.is_certain)
        }

        fn questions(&mut self) -> usize {
            std::iter::from_fn(|| self.asked.try_recv().ok()).count()
        }
    }

    /// Lets the background run until it waits for the clock.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_used_for_a_moment_and_then_while_it_is_renewed() {
        let mut world = world(Duration::ZERO);
        world.say(Some(true));
        assert_eq!(world.learn("a").await, (vec![true], true));
        advance(FRESH.saturating_sub(A_MOMENT)).await;
        world.say_nowhere();
        assert_eq!((world.learn("a").await, world.questions()), ((vec![true], true), 1));
        advance(A_MOMENT).await;
        assert_eq!(world.learn("a").await.0, [true], "stale, and asked anew");
        settle().await;
        assert_eq!((world.learn("a").await, world.questions()), ((vec![], true), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_is_ready_for_is_waited_for_once_it_is_old() {
        let mut world = world(Duration::from_millis(10));
        for (id, before, fresh) in [("a", None, FRESH_IF_NOTHING), ("b", Some(false), FRESH)] {
            match before {
                None => world.say_nowhere(),
                unready => world.say(unready),
            }
            let known = vec![false; usize::from(before.is_some())];
            assert_eq!(world.learn(id).await, (known.clone(), true));
            world.say(Some(true));
            advance(fresh.saturating_sub(A_MOMENT)).await;
            assert_eq!(world.learn(id).await, (known.clone(), true));
            advance(A_MOMENT).await;
            assert_eq!(world.cache.lookup(id, false).await.routes.len(), known.len(), "without waiting");
            assert_eq!(world.learn(id).await, (vec![true], true));
            assert_eq!(world.questions(), 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_control_plane_is_away_what_is_known_stays() {
        let mut world = world(Duration::ZERO);
        world.say(Some(true));
        world.learn("a").await;
        world.say(None);
        for _ in 0..100 {
            advance(FRESH).await;
            assert_eq!(world.learn("a").await.0, [true]);
            settle().await;
        }
        assert_eq!(world.learn("b").await, (vec![], false), "and what is not known is not made up");
        assert_eq!(world.questions(), 102);
    }

    #[tokio::test(start_paused = true)]
    async fn a_control_plane_that_hangs_holds_nobody_for_ever() {
        let world = world(Duration::MAX);
        let asked_at = Instant::now();
        assert_eq!(world.learn("a").await, (vec![], false));
        assert_eq!(asked_at.elapsed(), LONGEST_QUESTION);
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_names_hold_up_no_known_app() {
        let mut world = world(Duration::from_millis(10));
        world.say(Some(false));
        world.learn("known").await;
        advance(FRESH).await;
        world.say(Some(true));
        for number in 0..1000 {
            world.cache.lookup(&number.to_string(), false).await;
        }
        settle().await;
        assert_eq!(world.questions(), 1 + MAX_FIRST_QUESTIONS);
        let asked_at = Instant::now();
        assert_eq!(world.learn("known").await.0, [true]);
        assert!(asked_at.elapsed() < Duration::from_millis(20));
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_for_one_app_are_one_question() {
        let mut world = world(Duration::from_millis(10));
        world.say(Some(true));
        let answers = join_all((0..50).map(|_| world.learn("a"))).await;
        assert!(answers.iter().all(|answer| *answer == (vec![true], true)));
        assert_eq!(world.questions(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_names_fill_no_memory_and_push_out_nobody() {
        let world = world(Duration::ZERO);
        world.say(Some(true));
        world.learn("used").await;
        world.say_nowhere();
        for number in 0..2 * MAX_ENTRIES {
            world.cache.lookup(&number.to_string(), false).await;
            tokio::task::yield_now().await;
        }
        assert!(world.cache.entries.lock().unwrap().len() <= MAX_ENTRIES);
        world.say(None);
        advance(FRESH).await;
        assert_eq!(world.learn("used").await.0, [true]);
        assert_eq!(world.learn("new").await.0, [] as [bool; 0], "there is room again");
        assert!(world.cache.entries.lock().unwrap().contains_key("new"));
    }
}
