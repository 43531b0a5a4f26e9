//! One endpoint: what is known of it, and batches that it answers.

use std::time::Duration;

use cloister_verifier::Clock;
use parking_lot::Mutex;
use reqwest::Client;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};
use url::Url;

use super::transport::{self, DEFAULT_PAUSE};
use super::{Call, Item, decode, encode, encode_one, is_limit, wire};
use crate::config::{ChainConfig, InvalidChainConfig, shown};
use crate::error::{Failure, printable};

/// Most requests that are under way at one endpoint; others wait for their turn within their time.
const MAX_IN_FLIGHT: usize = 16;
/// How long an endpoint that failed is asked after all others.
const COOL_DOWN: Duration = Duration::from_secs(30);
/// Shorter parts of a URL than this are no secrets, and would make every message unreadable.
const SECRET_BYTES: usize = 8;

/// One endpoint.
pub(crate) struct Endpoint {
    url: Url,
    name: String,
    chain_id: u64,
    time_limit: Duration,
    http: Client,
    clock: Clock,
    turns: Semaphore,
    standing: Mutex<Standing>,
}

#[derive(Default)]
struct Standing {
    failed_at: Option<Instant>,
    /// It wants no requests before.
    not_before: Option<Instant>,
}

impl Endpoint {
    /// The endpoint at `url` of the chain of `config`.
    pub(crate) fn new(url: &Url, config: &ChainConfig, clock: &Clock) -> Result<Self, InvalidChainConfig> {
        Ok(Self {
            url: url.clone(),
            name: shown(url),
            chain_id: config.chain_id,
            time_limit: config.request_timeout,
            http: transport::client(url, config.request_timeout)?,
            clock: clock.clone(),
            turns: Semaphore::new(MAX_IN_FLIGHT),
            standing: Mutex::default(),
        })
    }

    /// What people may see of its address.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether others should be asked first.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let standing = self.standing.lock();
        standing.failed_at.is_some_and(|at| at.elapsed() < COOL_DOWN)
            || standing.not_before.is_some_and(|until| until > Instant::now())
    }

    /// Remembers whether its last answer was of use.
    pub(crate) fn note(&self, was_good: bool) {
        self.standing.lock().failed_at = (!was_good).then(Instant::now);
    }

    /// The answers to `calls`, in their order, from a node of the right chain.
    pub(crate) async fn batch(&self, mut calls: Vec<Call>) -> Result<Vec<Item>, Failure> {
        calls.push(chain_id_call());
        let mut items = self.exchange(&encode(&calls)?, calls.len()).await?;
        let chain_id = items.pop().ok_or(Failure::Garbage("an answer is missing"))?;
        self.check_chain(&chain_id?)?;
        Ok(items)
    }

    /// The answer to one call that is sent alone: wallets may know no batches.
    pub(crate) async fn call(&self, call: Call) -> Result<String, Failure> {
        let items = self.exchange(&encode_one(&call)?, 1).await?;
        Ok(items.into_iter().next().ok_or(Failure::Garbage("an answer is missing"))??)
    }

    /// Fails if it serves another chain.
    pub(crate) async fn require_chain(&self) -> Result<(), Failure> {
        self.check_chain(&self.call(chain_id_call()).await?)
    }

    fn check_chain(&self, item: &str) -> Result<(), Failure> {
        match wire::number(item)? {
            id if id == self.chain_id => Ok(()),
            id => Err(Failure::WrongChain(id.to_string())),
        }
    }

    /// Sends `body` and reads `count` answers, within the time, and when the endpoint wants requests.
    async fn exchange(&self, body: &[u8], count: usize) -> Result<Vec<Item>, Failure> {
        let deadline = deadline(self.time_limit);
        let answered = timeout_at(deadline, async {
            let _turn = self.turns.acquire().await.map_err(|_| Failure::Connection)?;
            loop {
                self.wait_for_leave(deadline).await?;
                match self.attempt(body, count).await {
                    Err(Failure::RateLimited(pause)) => self.leave_alone(pause),
                    other => return other,
                }
            }
        });
        let mut items = answered.await.unwrap_or(Err(Failure::Timeout)).map_err(|why| self.redacted(why))?;
        for error in items.iter_mut().filter_map(|item| item.as_mut().err()) {
            error.message = self.fit_for_people(&error.message);
        }
        Ok(items)
    }

    async fn attempt(&self, body: &[u8], count: usize) -> Result<Vec<Item>, Failure> {
        let answer = transport::post(&self.http, &self.url, body.to_vec(), &self.clock).await?;
        let items = decode(&answer, count);
        let is_limited = match &items {
            Err(Failure::Rpc { code, .. }) => is_limit(*code),
            Err(_) => false,
            Ok(items) => items.iter().any(|item| item.as_ref().is_err_and(|error| is_limit(error.code))),
        };
        if is_limited { Err(Failure::RateLimited(DEFAULT_PAUSE)) } else { items }
    }

    /// Waits until the endpoint wants requests again, if that is before `deadline`.
    async fn wait_for_leave(&self, deadline: Instant) -> Result<(), Failure> {
        let not_before = self.standing.lock().not_before;
        let Some(until) = not_before.filter(|until| *until > Instant::now()) else { return Ok(()) };
        if until >= deadline {
            return Err(Failure::RateLimited(until.saturating_duration_since(Instant::now())));
        }
        sleep_until(until).await;
        Ok(())
    }

    fn leave_alone(&self, pause: Duration) {
        // A pause of nothing would make this a busy loop.
        let pause = pause.max(Duration::from_millis(50));
        self.standing.lock().not_before = Some(deadline(pause));
    }

    fn redacted(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Rpc { code, message } => Failure::Rpc { code, message: self.fit_for_people(&message) },
            other => other,
        }
    }

    /// `message` without what only this URL has, since providers repeat API keys in their messages; then, and not
    /// before, printable and bounded: what was cut off a key would not be found.
    fn fit_for_people(&self, message: &str) -> String {
        let path = self.url.path_segments().into_iter().flatten().map(str::to_owned);
        let query = self.url.query_pairs().map(|(_, value)| value.into_owned());
        let login = [self.url.username().to_owned(), self.url.password().unwrap_or_default().to_owned()];
        let secrets = path.chain(query).chain(login).filter(|part| part.len() >= SECRET_BYTES);
        printable(&secrets.fold(message.to_owned(), |message, secret| message.replace(&secret, "…")))
    }
}

fn chain_id_call() -> Call {
    Call::new("eth_chainId", json!([]))
}

fn deadline(after: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(after).unwrap_or(now)
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Endpoint").field(&self.name).finish()
    }
}
