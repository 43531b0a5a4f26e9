//! One request that was admitted, and its record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cloister_aci::receipt::{Event, Receipt, SignError, Verification};
use http::HeaderMap;
use rust_decimal::Decimal;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Incoming;
use super::asked::Asked;
use super::attempt::{Begun, Trace};
use super::walk::Tried;
use super::wire::Wire;
use crate::accounting::{Tokens, cost};
use crate::error::{GatewayError, Kind};
use crate::gateway::{Gateway, Live};
use crate::observe::{self, Attempted};
use crate::proof::Identity;
use crate::record::{Finished, KeptReceipt, Row};

/// Longest `usage` of an upstream that is kept as it came, in bytes.
const MAX_USAGE_BYTES: usize = 4 << 10;
/// Who failed, when a client leaves.
pub(super) const CLIENT: &str = "client";
/// What is recorded of a request that the end of the gateway cut off.
pub(super) const STOPPED: &str = "the gateway was stopped";

/// A request that was admitted.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) gateway: Arc<Gateway>,
    pub(super) live: Arc<Live>,
    pub(super) identity: Arc<Identity>,
    pub(super) incoming: Incoming,
    pub(super) asked: Asked,
    /// How often a byte of the answer counts in memory.
    pub(super) weight: usize,
    /// `rcpt-` and 24 hex digits, those that the request's id begins with.
    pub(super) receipt_id: String,
    /// Headers that say whether and how the answer is encrypted.
    pub(super) e2ee_headers: Vec<(&'static str, String)>,
    pub(super) began: Instant,
    pub(super) random: u64,
}

/// What a receipt is made of.
#[derive(Debug)]
pub(super) struct Account {
    events: Vec<Event>,
    /// Id of the answer, if there is one.
    answer_id: Option<String>,
    /// When the request went out.
    served: Instant,
}

/// How an answer, or the last attempt at one, ended.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What is recorded.
    pub(super) status: u16,
    /// The attempt that answered, or broke; `None` for the summary of a failure.
    pub(super) last: Option<Begun>,
    /// When the first content came, since the request went to that upstream.
    pub(super) first_content: Option<Duration>,
    pub(super) usage: Option<Box<RawValue>>,
    pub(super) tokens: Tokens,
    /// Why the choices ended.
    pub(super) finish_reasons: Vec<String>,
    /// Who failed, and how: `upstream` or `gateway`, and a sentence.
    pub(super) failure: Option<(&'static str, &'static str)>,
}

impl Outcome {
    /// Nothing was produced.
    pub(super) fn nothing(status: u16, last: Option<Begun>, failure: (&'static str, &'static str)) -> Self {
        Self {
            status,
            last,
            first_content: None,
            usage: None,
            tokens: Tokens::default(),
            finish_reasons: Vec::new(),
            failure: Some(failure),
        }
    }

    fn sent(&self) -> Option<Duration> {
        self.last.as_ref().and_then(|last| last.sent)
    }

    /// The answer cannot be signed for, or recorded: to the client, unless it left, it is a failure, and a stream that has
    /// begun breaks off.
    fn lose(&mut self, is_streaming: bool, why: &'static str) {
        self.status = match self.status {
            499 => 499,
            _ if is_streaming && self.first_content.is_some() => 502,
            _ => 500,
        };
        self.failure = Some(("gateway", why));
    }
}

impl Exchange {
    /// A random byte of the request.
    pub(super) const fn random_byte(&self) -> u8 {
        self.random.to_le_bytes()[7]
    }

    /// Gives back the memory of what was asked, once nobody sends it any more. Headers are parts of what was read from
    /// the connection, and would keep all of it.
    pub(super) fn forget_request(&mut self) {
        self.incoming.headers = HeaderMap::new();
        self.incoming.body = Bytes::new();
        self.asked.shaped.body = Bytes::new();
    }

    /// What the receipt says of an attempt and of all that went out for it. Only what answers has the answer's id.
    pub(super) fn account(&self, trace: &Trace, wire: &Wire, is_answer: bool) -> Account {
        let mut events = trace.events(&self.asked);
        events.push(wire.returned());
        let answer_id = self.asked.answer_id.clone().filter(|_| is_answer);
        Account { events, answer_id, served: trace.sent }
    }

    /// Records everything about the request, durably, and counts what it used. What cannot be recorded now is when that can
    /// be, as a failure.
    pub(super) async fn finish(
        &self,
        tried: &[Tried],
        mut outcome: Outcome,
        account: Option<Account>,
    ) -> Result<(), GatewayError> {
        let (now, over) = (crate::gateway::unix_now(), Instant::now());
        let ended = over.duration_since(self.began);
        let receipt = account.map(|account| self.receipt(account, now, over)).transpose();
        // What was used is recorded all the same.
        let (receipt, signed) = receipt.map_or_else(|error| (None, Err(error)), |receipt| (receipt, Ok(())));
        let believed = self.asked.believable(outcome.tokens);
        if believed != outcome.tokens {
            tracing::warn!(
                request_id = self.incoming.request_id,
                prompt_tokens = outcome.tokens.prompt,
                completion_tokens = outcome.tokens.completion,
                "the upstream counts more tokens than there can be: as many as there can be are charged"
            );
            outcome.tokens = believed;
        }
        let (answered, is_streaming) = (outcome.status, self.asked.shaped.is_streaming);
        if signed.is_err() {
            outcome.lose(is_streaming, "the receipt could not be signed");
        }
        self.count(tried, answered, &outcome, receipt.is_some(), ended);
        let rows = self.rows(tried, &outcome, now, ended);
        let cost = rows.iter().fold(Decimal::ZERO, |sum, row| sum.saturating_add(row.cost));
        let (key, tokens) = (self.asked.key, outcome.tokens);
        let recorded = self.gateway.store.finish(Finished { key, rows, receipt }).await;
        if recorded.is_err() {
            outcome.lose(is_streaming, "the answer could not be recorded");
            self.gateway.arrears.add(Finished {
                key,
                rows: self.rows(tried, &outcome, now, ended),
                receipt: None,
            });
        }
        self.gateway.control.used(key, tokens, cost);
        let failed = recorded.err().map(|error| error.to_string());
        self.tell_attempts(tried, &outcome, ended);
        let Some(error) = failed.or_else(|| signed.err().map(|error| error.to_string())) else {
            return Ok(());
        };
        tracing::error!(
            request_id = self.incoming.request_id,
            error,
            "a request could not be recorded, or signed for"
        );
        Err(GatewayError::new(Kind::Internal, "The answer could not be recorded"))
    }

    /// A row for each attempt; the last one is the outcome, which `ended` so long after the request came in.
    fn rows(&self, tried: &[Tried], outcome: &Outcome, now: u64, ended: Duration) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::with_capacity(tried.len() + 1);
        for attempt in tried {
            let failed =
                Outcome::nothing(attempt.status, Some(attempt.attempt.clone()), ("upstream", attempt.why));
            rows.push(self.row(&failed, rows.len(), now, attempt.ended));
        }
        rows.push(Row { is_last: true, ..self.row(outcome, rows.len(), now, ended) });
        rows
    }

    /// Counts it; `answered` is the status that the last attempt had.
    fn count(&self, tried: &[Tried], answered: u16, outcome: &Outcome, has_receipt: bool, ended: Duration) {
        let Asked { shaped, .. } = &self.asked;
        let metrics = &self.gateway.metrics;
        let of_attempts = tried.iter().map(|attempt| attempt.status);
        for status in of_attempts.chain(outcome.last.as_ref().map(|_| answered)) {
            metrics.upstream_answered(shaped.surface, shaped.is_streaming, status, &shaped.model);
        }
        metrics.finished(&observe::Outcome {
            request_id: &self.incoming.request_id,
            surface: shaped.surface,
            is_streaming: shaped.is_streaming,
            is_encrypted: !self.e2ee_headers.is_empty(),
            model: &shaped.model,
            route: outcome
                .last
                .as_ref()
                .or_else(|| tried.last().map(|tried| &tried.attempt))
                .map(|attempt| attempt.route_id.as_str()),
            attempts: tried.len() + usize::from(outcome.last.is_some()),
            status: outcome.status,
            has_receipt,
            before_upstream: outcome.first_content.and(outcome.sent()),
            first_content: outcome.first_content,
            total: ended,
            finish_reasons: &outcome.finish_reasons,
            failure: outcome.failure,
        });
    }

    /// A span for each attempt; the last one ended so long after the request came in.
    fn tell_attempts<'a>(&'a self, tried: &'a [Tried], outcome: &'a Outcome, ended: Duration) {
        let (Some(traces), Some(span)) = (&self.gateway.traces, &self.incoming.span) else { return };
        let Asked { shaped, .. } = &self.asked;
        let came_in = self.began.into_std();
        // A client that leaves is no error of anybody.
        let failure = outcome.failure.filter(|(source, _)| *source != CLIENT);
        if failure.is_some() {
            span.note_failure(outcome.status);
        }
        let attempted = |begun: &'a Begun, ended, status, why| Attempted {
            surface: shaped.surface,
            model: &shaped.model,
            route: &begun.route_id,
            provider: begun.provider,
            began: begun.began,
            sent: begun.sent,
            first_content: None,
            ended,
            status,
            why,
            tokens: Tokens::default(),
            finish_reasons: &[],
        };
        for Tried { attempt, status, why, ended } in tried {
            traces.attempted(span, came_in, &attempted(attempt, *ended, *status, Some(why)));
        }
        let Some(last) = &outcome.last else { return };
        let why = failure.map(|(_, why)| why);
        traces.attempted(
            span,
            came_in,
            &Attempted {
                first_content: outcome.first_content.zip(last.sent).map(|(first, sent)| sent + first),
                tokens: outcome.tokens,
                finish_reasons: &outcome.finish_reasons,
                ..attempted(last, ended, outcome.status, why)
            },
        );
    }

    fn row(&self, outcome: &Outcome, index: usize, now: u64, ended: Duration) -> Row {
        let Asked { admission, shaped, routes, .. } = &self.asked;
        let route_id = outcome.last.as_ref().map(|last| &last.route_id);
        let route = route_id.and_then(|id| routes.iter().find(|route| route.id == *id));
        let pricing = self.asked.pricing(route.map(AsRef::as_ref));
        let cost =
            if outcome.tokens == Tokens::default() { Decimal::ZERO } else { cost(outcome.tokens, pricing) };
        Row {
            request_id: self.incoming.request_id.clone(),
            endpoint: self.incoming.surface.path().to_owned(),
            status: outcome.status,
            duration_ms: millis(ended),
            ttft_ms: outcome.first_content.map(|time| millis(outcome.sent().unwrap_or_default() + time)),
            is_streaming: shaped.is_streaming,
            attempt_index: u32::try_from(index).unwrap_or(u32::MAX),
            selected_route_id: route_id.cloned(),
            request_model: shaped.model.clone(),
            usage: outcome.usage.clone().filter(|usage| usage.get().len() <= MAX_USAGE_BYTES),
            prompt_tokens: outcome.tokens.prompt,
            completion_tokens: outcome.tokens.completion,
            cost,
            pricing: Some(pricing.clone()),
            spend_mode: admission.spend_mode.clone(),
            user_id: admission.user_id.clone(),
            virtual_key_id: admission.virtual_key_id.clone(),
            // A client that leaves is no error of anybody.
            error_source: outcome
                .failure
                .map(|(source, _)| source.to_owned())
                .filter(|source| source != CLIENT),
            error_message: outcome.failure.map(|(_, why)| why.to_owned()),
            prefix_hash: admission.prefix_hash.clone(),
            ended_at: now,
            is_last: false,
        }
    }

    /// The signed receipt of what is over. Counts the verifications that it tells of.
    fn receipt(&self, account: Account, now: u64, over: Instant) -> Result<KeptReceipt, SignError> {
        let Account { events, answer_id: chat_id, served } = account;
        for event in &events {
            if let Event::UpstreamVerified { required, verification, .. } = event {
                let is_verified = matches!(verification, Verification::Verified { .. });
                self.gateway.metrics.verified(is_verified, *required);
            }
        }
        // When the channel was taken that the receipt names: a long stream may outlive its session.
        let served_at = now.saturating_sub(over.duration_since(served).as_secs());
        let session_id = events.iter().find_map(|event| match event {
            Event::UpstreamVerified { verification: Verification::Verified { session_id, .. }, .. } => {
                Some(session_id.clone())
            }
            _ => None,
        });
        let document = self.identity.sign(&Receipt {
            chat_id: chat_id.clone(),
            endpoint: self.incoming.surface.path().to_owned(),
            event_log: events,
            method: "POST".to_owned(),
            model: Some(self.asked.shaped.model.clone()),
            receipt_id: self.receipt_id.clone(),
            served_at,
            workload_keyset_digest: self.identity.digest.clone(),
        })?;
        Ok(KeptReceipt { id: self.receipt_id.clone(), chat_id, session_id, document, served_at })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
