//! A process that lives no longer than the one that started it.

use std::io::Read as _;
use std::time::Duration;

use tokio::sync::oneshot;

/// Longest time that requests under way get after the parent has gone: nobody else would end this process.
pub(super) const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// The option.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Bond {
    /// End when standard input is closed, as it is when the process on the other end of it ends
    #[arg(long)]
    exit_with_parent: bool,
}

/// The parent, if its end counts.
#[derive(Debug)]
pub(super) struct Parent(Option<oneshot::Receiver<()>>);

impl Bond {
    /// Watches standard input from now on, if that is wanted. A thread of its own does, because nothing can interrupt
    /// such a read, and the runtime would wait for it at the end.
    pub(super) fn parent(self) -> Parent {
        Parent(self.exit_with_parent.then(|| {
            let (sender, gone) = oneshot::channel();
            std::thread::spawn(move || {
                let mut ignored = [0; 64];
                while std::io::stdin().read(&mut ignored).is_ok_and(|read| read > 0) {}
                let _ = sender.send(());
            });
            gone
        }))
    }
}

impl Parent {
    /// Returns when it has gone; never if that does not count. To be waited for until it returns, not again after that.
    pub(super) async fn gone(&mut self) {
        match &mut self.0 {
            Some(gone) => drop(gone.await),
            None => std::future::pending().await,
        }
    }
}
