//! Looks at what changes on the host by itself: guest images and GPUs.

use std::sync::Arc;

use cloister_node_api::{NodeImage, REPORT_INTERVAL};
use tokio::sync::{Notify, watch};

use crate::vms::{Host, blocking};

/// Looks now, and then again and again, at the latest when `arrived` tells of a new image. Hashing one holds
/// no report up. The images are told here, the GPUs where they are kept.
pub(crate) async fn watch_host(host: &Arc<Host>, arrived: Arc<Notify>) -> watch::Receiver<Vec<NodeImage>> {
    let (images, receiver) = watch::channel(look(host).await.0);
    let background = Arc::clone(host);
    host.tasks.spawn(host.stopping.clone().run_until_cancelled_owned(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(REPORT_INTERVAL) => {}
                () = arrived.notified() => {}
            }
            let (found, other_gpus) = look(&background).await;
            let other_images =
                images.send_if_modified(|known| (*known != found).then(|| *known = found).is_some());
            if other_images || other_gpus {
                background.changed.notify_one();
            }
        }
    }));
    receiver
}

/// The images that there are, and whether the GPUs are others than before.
async fn look(host: &Arc<Host>) -> (Vec<NodeImage>, bool) {
    let (host, running) = (Arc::clone(host), host.tasks.token());
    let look = move || {
        let images = host.images.scan().into_iter().map(|image| image.description).collect();
        let other_gpus = host.gpus.scan();
        // A node that stops waits for this: nothing may hold its locks after it.
        drop(host);
        drop(running);
        Ok::<_, std::convert::Infallible>((images, other_gpus))
    };
    blocking(look).await.unwrap_or_default()
}
