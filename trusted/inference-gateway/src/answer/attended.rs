//! Work that somebody waits for, and that goes on without them.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The answer that some work gives on its way. Until then the work is done by whoever waits for it, which saves a request
/// a task of its own and the switches to it and back; what is left of it afterwards, or when nobody waits any more,
/// becomes a task. The work alone has the sender, and gives the answer while it is polled.
pub(super) struct Attended<T> {
    /// Until it ended.
    work: Option<Work>,
    answer: oneshot::Receiver<T>,
}

impl<T> Attended<T> {
    pub(super) const fn new(work: Work, answer: oneshot::Receiver<T>) -> Self {
        Self { work: Some(work), answer }
    }
}

impl<T> Future for Attended<T> {
    /// `None` from work that ended without an answer.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        // Work that panics is over.
        if let Some(mut work) = self.work.take()
            && work.as_mut().poll(context).is_pending()
        {
            self.work = Some(work);
        }
        match self.answer.try_recv() {
            Ok(answer) => Poll::Ready(Some(answer)),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Closed) => Poll::Ready(None),
        }
    }
}

impl<T> Drop for Attended<T> {
    fn drop(&mut self) {
        self.answer.close();
        // Where the runtime ends, so would a task.
        if let Some(work) = self.work.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt as _;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn what_is_left_when_the_answer_is_there_goes_on_as_a_task() {
        let (answer, answered) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let work = Box::pin(async move {
            yield_now().await;
            answer.send(7).unwrap();
            yield_now().await;
            end.send(8).unwrap();
        });
        assert_eq!(Attended::new(work, answered).await, Some(7));
        assert_eq!(ended.await, Ok(8));
    }

    #[tokio::test]
    async fn work_goes_on_that_nobody_waits_for_and_hears_of_it() {
        let (mut answer, answered) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel();
        let work = Box::pin(async move {
            answer.closed().await;
            end.send(answer.is_closed()).unwrap();
        });
        let mut attended = Attended::new(work, answered);
        assert!((&mut attended).now_or_never().is_none());
        drop(attended);
        assert_eq!(ended.await, Ok(true));
    }

    #[tokio::test]
    async fn work_that_ends_without_an_answer_is_told_at_once() {
        let (answer, answered) = oneshot::channel::<()>();
        let work = Box::pin(async move {
            yield_now().await;
            drop(answer);
            pending::<()>().await;
        });
        assert_eq!(Attended::new(work, answered).await, None);
    }

    #[tokio::test]
    async fn work_that_panics_is_not_begun_again() {
        let (answer, answered) = oneshot::channel::<()>();
        let work: Work = Box::pin(async move {
            let _answer = answer;
            panic!("as it has to");
        });
        let mut attended = Attended::new(work, answered);
        let polled = std::panic::AssertUnwindSafe(&mut attended).catch_unwind().await;
        polled.unwrap_err();
        assert!(attended.work.is_none());
    }
}
