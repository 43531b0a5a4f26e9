//! Work that goes on when whoever began it is gone.

use futures_util::FutureExt as _;
use tokio::runtime::Handle;

/// Begins at once, also where no runtime is left, and goes on as a task of the runtime if that does not end it.
pub(crate) fn unattended(work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    if (&mut work).now_or_never().is_none()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(work);
    }
}
