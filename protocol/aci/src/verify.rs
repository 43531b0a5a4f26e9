//! The checks of a relying party, in their order. Each says what it found; none stops the others.

pub mod gateway;

use std::fmt;

use ed25519_dalek::{Signature, VerifyingKey};
use serde::Deserialize;
use serde_json::Value;

use crate::canonical::{canonical, sha256};
use crate::log::Record;
use crate::session::{self, Evidence};
use crate::{API_VERSION, Keyset};

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The document is of this version.
    Version,
    /// It is the one that was asked for.
    Id,
    /// The keyset has the key that signed.
    Key,
    /// The signature is of that key, over the whole document.
    Signature,
    /// The receipt belongs to the keyset, which held when the request was served.
    Keyset,
    /// The keyset is that of the application which the evidence measured.
    Subject,
    /// The log begins with the request, ends with the answer, and is numbered without a gap.
    Order,
    /// The request that was sent is the one that came in.
    Request,
    /// The answer that was received is the one that went out.
    Response,
    /// The upstream was verified.
    Upstream,
    /// The session is the one that the receipt names, it held at that time, and its evidence is complete.
    Session,
    /// The gateway's public log has the receipt.
    Logged,
    /// The upstream got what was sent, but for what the gateway says it changed.
    Unchanged,
}

impl Check {
    /// Every check, in order.
    pub const ALL: [Self; 13] = [
        Self::Version,
        Self::Id,
        Self::Key,
        Self::Signature,
        Self::Keyset,
        Self::Subject,
        Self::Order,
        Self::Request,
        Self::Response,
        Self::Upstream,
        Self::Session,
        Self::Logged,
        Self::Unchanged,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Id => "id",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Keyset => "keyset",
            Self::Subject => "subject",
            Self::Order => "event_log",
            Self::Request => "request",
            Self::Response => "response",
            Self::Upstream => "upstream",
            Self::Session => "session",
            Self::Logged => "log",
            Self::Unchanged => "unchanged",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It holds.
    Holds,
    /// It does not.
    Fails(String),
    /// Nothing was there to check it with, or it does not apply.
    Open(String),
}

/// What the relying party knows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// The keyset that was established from a verified report.
    pub keyset: Option<&'a Keyset>,
    /// Its digest, over the keyset as it was sent.
    pub keyset_digest: Option<&'a str>,
    /// The application that the evidence measured, `app-id:0x…`.
    pub subject: Option<&'a str>,
    /// Id that the receipt was asked for by: its own, or that of the answer.
    pub id: Option<&'a str>,
    /// The request body, byte for byte.
    pub request: Option<&'a [u8]>,
    /// The answer's body, byte for byte.
    pub response: Option<&'a [u8]>,
    /// The session record that the receipt names.
    pub session: Option<&'a Value>,
    /// Sessions that were asked for; empty where any would do.
    pub pinned: &'a [String],
    /// Whether the model runs in the gateway's own machine by its report, so that no upstream is verified.
    pub serves_directly: bool,
    /// What the public log of receipts showed.
    pub logged: Logged<'a>,
}

/// What was seen of a receipt in the public log.
#[derive(Debug, Clone, Copy)]
pub enum Logged<'a> {
    /// Nothing, for this reason: nobody looked, or there was nothing to look at.
    Unseen(&'a str),
    /// The text of a record that is proved to be in the log.
    Record(&'a str),
    /// Not what had to be seen, for this reason.
    Refused(&'a str),
}

impl Default for Logged<'_> {
    fn default() -> Self {
        Self::Unseen("the log of receipts was not looked at")
    }
}

#[derive(Deserialize)]
struct SessionTimes {
    established_at: u64,
    expires_at: u64,
    evidence: Evidence,
    channel_binding: Vec<Value>,
}

/// Walks the checks over a receipt.
#[must_use]
pub fn receipt(document: &Value, known: &Known<'_>) -> Vec<(Check, Finding)> {
    let look = Look { document, known };
    Check::ALL.into_iter().map(|check| (check, look.at(check))).collect()
}

/// Whether every check that was made holds and what has to be checked was: a receipt whose signature could not be
/// checked proves nothing.
#[must_use]
pub fn holds(findings: &[(Check, Finding)]) -> bool {
    let is_needed = |check| {
        !matches!(
            check,
            Check::Id
                | Check::Subject
                | Check::Request
                | Check::Response
                | Check::Session
                | Check::Logged
                | Check::Unchanged
        )
    };
    findings.iter().all(|(check, finding)| match finding {
        Finding::Holds => true,
        Finding::Fails(_) => matches!(check, Check::Unchanged),
        Finding::Open(_) => !is_needed(*check) || matches!(check, Check::Upstream),
    })
}

struct Look<'a> {
    document: &'a Value,
    known: &'a Known<'a>,
}

fn fails(reason: impl Into<String>) -> Finding {
    Finding::Fails(reason.into())
}

fn open(reason: &str) -> Finding {
    Finding::Open(reason.to_owned())
}

fn is(holds: bool, otherwise: &str) -> Finding {
    if holds { Finding::Holds } else { fails(otherwise) }
}

fn subject(said: Option<&str>, measured: Option<&str>) -> Finding {
    match (said, measured) {
        (None, _) => open("the keyset does not say whose it is"),
        (_, None) => open("it is not known which application was measured"),
        (Some(said), Some(measured)) if said == measured => Finding::Holds,
        (Some(said), Some(measured)) => {
            fails(format!("the keyset is that of {said}, and the evidence that of {measured}"))
        }
    }
}

impl<'a> Look<'a> {
    fn at(&self, check: Check) -> Finding {
        match check {
            Check::Version => is(self.text("api_version") == Some(API_VERSION), "not of version aci/1"),
            Check::Id => self.id(),
            Check::Key => self.key(),
            Check::Signature => self.signature(),
            Check::Keyset => self.keyset(),
            Check::Subject => {
                subject(self.known.keyset.and_then(|keyset| keyset.subject.as_deref()), self.known.subject)
            }
            Check::Order => self.order(),
            Check::Request => self.body("request.received", self.known.request, "the request is not at hand"),
            Check::Response => {
                self.body("response.returned", self.known.response, "the answer is not at hand")
            }
            Check::Upstream => self.upstream(),
            Check::Session => self.session(),
            Check::Logged => self.logged(),
            Check::Unchanged => self.unchanged(),
        }
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.document.get(name)?.as_str()
    }

    fn events(&self) -> &'a [Value] {
        self.document.get("event_log").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The only event of a kind: one that appears twice is as good as none, since it says two things.
    fn event(&self, kind: &str) -> Option<&'a Value> {
        let mut found = self.events().iter().filter(|event| kind_of(event) == Some(kind));
        let event = found.next()?;
        found.next().is_none().then_some(event)
    }

    fn served_at(&self) -> Option<u64> {
        self.document.get("served_at").and_then(Value::as_u64)
    }

    fn id(&self) -> Finding {
        let Some(asked) = self.known.id else { return open("it was not asked for by an id") };
        let is_one = ["receipt_id", "chat_id"].iter().any(|name| self.text(name) == Some(asked));
        is(is_one, "the receipt is of another request than the one that was asked for")
    }

    fn keyset(&self) -> Finding {
        let (Some(digest), Some(keyset)) = (self.known.keyset_digest, self.known.keyset) else {
            return open("no keyset was established");
        };
        if self.text("workload_keyset_digest") != Some(digest) {
            return fails("the receipt belongs to another keyset");
        }
        let held = self.served_at().is_some_and(|at| at < keyset.not_after);
        is(held, "the keyset had ended when the request was served")
    }

    fn key(&self) -> Finding {
        let Some(keyset) = self.known.keyset else { return open("no keyset was established") };
        match self.text("key_id").map(|id| (id, keyset.receipt_key(id))) {
            None => fails("the receipt names no key"),
            Some((id, None)) => fails(format!("the keyset has no receipt key {id:?} of a known algorithm")),
            Some((_, Some(_))) => Finding::Holds,
        }
    }

    fn signature(&self) -> Finding {
        let Some(keyset) = self.known.keyset else { return open("no keyset was established") };
        match self.is_signed(keyset) {
            Some(true) => Finding::Holds,
            Some(false) => fails("the signature is not of this key over this document"),
            None => fails("the signature or the key cannot be read"),
        }
    }

    fn is_signed(&self, keyset: &Keyset) -> Option<bool> {
        let key = keyset.receipt_key(self.text("key_id")?)?;
        let key: [u8; 32] = hex::decode(&key.public_key).ok()?.try_into().ok()?;
        let key = VerifyingKey::from_bytes(&key).ok()?;
        let signature: [u8; 64] = hex::decode(self.text("signature")?).ok()?.try_into().ok()?;
        let mut unsigned = self.document.clone();
        unsigned.as_object_mut()?.shift_remove("signature");
        let bytes = canonical(&unsigned).ok()?;
        Some(key.verify_strict(&bytes, &Signature::from_bytes(&signature)).is_ok())
    }

    fn order(&self) -> Finding {
        let events = self.events();
        let (first, last) = (events.first().and_then(kind_of), events.last().and_then(kind_of));
        if (first, last) != (Some("request.received"), Some("response.returned")) {
            return fails("the log does not begin with the request and end with the answer");
        }
        let numbered = events
            .iter()
            .zip(0_u64..)
            .all(|(event, index)| event.get("seq").is_none_or(|seq| seq.as_u64() == Some(index)));
        is(numbered, "the events are not numbered from 0 without a gap")
    }

    fn body(&self, kind: &str, bytes: Option<&[u8]>, absent: &str) -> Finding {
        let Some(bytes) = bytes else { return open(absent) };
        let hash = sha256(bytes);
        match self.event(kind).and_then(hash_of) {
            Some(named) if named == hash => Finding::Holds,
            Some(named) => fails(format!("{kind} has {named}, the bytes have {hash}")),
            None => fails(format!("the log does not have {kind} once")),
        }
    }

    fn upstream(&self) -> Finding {
        const KIND: &str = "upstream.verified";
        let Some(event) = self.event(KIND) else {
            let says_nothing = self.events().iter().all(|event| kind_of(event) != Some(KIND));
            return if self.known.serves_directly && says_nothing {
                open("the model runs in the gateway's own machine, by its report")
            } else {
                fails("the log does not say once what was verified of the upstream")
            };
        };
        match (member(event, "result"), member(event, "session_id"), member(event, "reason")) {
            (Some("verified"), Some(_), _) => Finding::Holds,
            (Some("verified"), None, _) => fails("verified, but no session says how"),
            (_, _, Some(reason)) => fails(reason),
            (_, _, None) => fails("the upstream was not verified"),
        }
    }

    fn session(&self) -> Finding {
        let named = self.event("upstream.verified").and_then(|event| member(event, "session_id"));
        let Some(named) = named else {
            return match self.known.pinned {
                [] => open("the receipt names no session"),
                _ => fails("sessions were asked for, and the receipt names none"),
            };
        };
        if !self.known.pinned.is_empty() && !self.known.pinned.iter().any(|pinned| pinned == named) {
            return fails("the session is none of those that were asked for");
        }
        let Some(record) = self.known.session else {
            return fails("the session's record is not at hand: nothing says what was verified");
        };
        match session::id(record) {
            Ok(id) if id == named => {}
            _ => return fails("the record is not that of the session"),
        }
        let Ok(session) = SessionTimes::deserialize(record) else {
            return fails("the session's record cannot be read");
        };
        if session.channel_binding.is_empty() {
            return fails("the session ties requests to nothing");
        }
        if session.evidence.bytes().is_none() {
            return fails("the session's evidence does not have the digest that the session says");
        }
        let held =
            self.served_at().is_some_and(|at| (session.established_at..=session.expires_at).contains(&at));
        is(held, "the session did not hold when the request was served")
    }

    fn logged(&self) -> Finding {
        match self.known.logged {
            Logged::Unseen(reason) => open(reason),
            Logged::Refused(reason) => fails(reason),
            Logged::Record(text) => {
                let own = Record::of(self.document).is_some_and(|record| record.text() == text);
                is(own, "the log has another receipt there")
            }
        }
    }

    fn unchanged(&self) -> Finding {
        let hash = |kind| self.event(kind).and_then(hash_of);
        match (hash("request.received"), hash("request.forwarded")) {
            (_, None) => open("nothing was sent to an upstream"),
            (received, forwarded) => is(
                received == forwarded,
                "the upstream got other bytes than the gateway, such as its own name of the model",
            ),
        }
    }
}

fn kind_of(event: &Value) -> Option<&str> {
    member(event, "type")
}

fn hash_of(event: &Value) -> Option<&str> {
    member(event, "body_hash")
}

fn member<'a>(event: &'a Value, name: &str) -> Option<&'a str> {
    event.get(name)?.as_str()
}
