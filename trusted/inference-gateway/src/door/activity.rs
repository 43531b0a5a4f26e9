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
    /// When the last one ended.
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
    /// none of the others from going on.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        let state = self.0.lock();
        let given = state.given.iter().map(|(_, since)| *since);
        given.max().filter(|_| state.given.len() >= state.requests)
    }
}

/// A request until all of its answer was given.
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
        response.map(|body| Followed { body: Pieces::of(body), is_given: false, busy: self })
    }

    fn forget(&self, state: &mut State) {
        state.given.retain(|(number, _)| *number != self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.activity.0.lock();
        self.forget(&mut state);
        state.requests = state.requests.saturating_sub(1);
        state.since = Instant::now();
    }
}

/// A body that is given piece by piece.
pub(super) struct Followed {
    body: Pieces<Body>,
    /// Whether it is among those of which a piece was given.
    is_given: bool,
    busy: Busy,
}

impl hyper::body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if std::mem::take(&mut self.is_given) {
            let mut state = self.busy.activity.0.lock();
            self.busy.forget(&mut state);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.as_ref().is_some_and(|frame| frame.as_ref().is_ok_and(Frame::is_data)) {
            // After the last piece nobody comes back: it is forgotten with the request, as soon as there is room for it.
            self.busy.activity.0.lock().given.push((self.busy.number, Instant::now()));
            self.is_given = true;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
