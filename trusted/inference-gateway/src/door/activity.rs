//! Whether a connection is in use, and whether its client takes what it is given.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::pieces::Pieces;

/// What goes on over a connection.
pub(super) struct Activity(Mutex<State>);

struct State {
    /// Requests that are under way.
    requests: usize,
    /// When the last one ended, or a client last took a piece.
    since: Instant,
    /// The number of the next one.
    next: u64,
    /// Pieces after which nobody has come for more yet: whose, and when they were given.
    given: Vec<(u64, Instant)>,
}

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new(State { requests: 0, since: Instant::now(), next: 0, given: Vec::new() }))
    }
}

impl Activity {
    /// Since when the connection is idle, if it is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.0.lock();
        (state.requests == 0).then_some(state.since)
    }

    /// Since when the client takes nothing of any of its answers. Of a connection that carries several, one that waits keeps
    /// none of the others from going on; nor do others that it asks for make up for what it does not take.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        let state = self.0.lock();
        let oldest = state.oldest().filter(|_| state.given.len() >= state.requests)?;
        Some(oldest.max(state.since))
    }

    /// Since when the client takes nothing of the answer that it has left for longest, whatever it takes of others.
    pub(super) fn left_since(&self) -> Option<Instant> {
        self.0.lock().oldest()
    }
}

impl State {
    fn oldest(&self) -> Option<Instant> {
        self.given.iter().map(|(_, since)| *since).min()
    }
}

/// A request until all of its answer was taken.
pub(super) struct Busy {
    activity: Arc<Activity>,
    number: u64,
}

impl Busy {
    pub(super) fn begin(activity: &Arc<Activity>) -> Self {
        let mut state = activity.0.lock();
        state.requests += 1;
        state.next = state.next.wrapping_add(1);
        Self { activity: Arc::clone(activity), number: state.next }
    }

    pub(super) fn follow(self, response: Response<Body>) -> Response<Followed> {
        response.map(|body| Followed { body: Pieces::of(body), is_given: false, busy: Some(self) })
    }

    fn give(&self) {
        self.activity.0.lock().given.push((self.number, Instant::now()));
    }

    fn take(&self, state: &mut State) {
        state.given.retain(|(number, _)| *number != self.number);
        state.since = Instant::now();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.activity.0.lock();
        self.take(&mut state);
        state.requests = state.requests.saturating_sub(1);
    }
}

/// A body that is given piece by piece.
pub(super) struct Followed {
    body: Pieces<Body>,
    /// Whether it is among those of which a piece was given.
    is_given: bool,
    /// Until the last piece was given.
    busy: Option<Busy>,
}

/// The last piece of an answer, after which nobody comes back. Over HTTP/2 it may lie in a buffer for as long as the client
/// has no window for it: the request is over when it was sent.
struct Last {
    bytes: Bytes,
    _busy: Busy,
}

impl AsRef<[u8]> for Last {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl hyper::body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if let Some(busy) = this.busy.as_ref().filter(|_| std::mem::take(&mut this.is_given)) {
            busy.take(&mut busy.activity.0.lock());
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        let Some(busy) = this.busy.take_if(|_| frame.is_data()) else { return Poll::Ready(Some(Ok(frame))) };
        busy.give();
        if this.body.is_end_stream() {
            let last = |bytes| Bytes::from_owner(Last { bytes, _busy: busy });
            return Poll::Ready(Some(Ok(frame.map_data(last))));
        }
        (this.busy, this.is_given) = (Some(busy), true);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
