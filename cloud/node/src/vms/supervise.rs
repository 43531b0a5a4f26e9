//! What goes on beside a running VM: its end, its words, its needs, its deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cloister_node_api::ExitReason;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::deadline::Overdue;
use super::live::{Ends, Live};
use super::vm::Vm;
use super::{blocking, status};
use crate::development;
use crate::images::Mirror;
use crate::vmm::Events;

/// Time that is left for reading what a process said before it ended.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);
/// Between two looks at what a VM may need.
const TEND_INTERVAL: Duration = Duration::from_secs(10);

/// Accompanies a VM until its process ends or the node stops.
pub(super) async fn run(vm: Arc<Vm>, live: Arc<Live>, ends: Ends, workspace: i64) {
    let Ends { messages, events } = ends;
    let channels = vm.dir.channels();
    // A guest without a mirror pulls from the registries themselves.
    let _mirror = Mirror::serve(&vm.dir.mirror_socket(), workspace, &vm.host.app_images)
        .inspect_err(|error| tracing::error!(vm = %vm.id, %error, "cannot serve pushed images to a VM"));
    let (news, heard) = watch::channel(());
    let listen = |status| {
        if vm.guest_said(status) {
            news.send_replace(());
        }
    };
    let ended = tokio::select! {
        // What the guest said before its end no longer counts then: another one may run already.
        biased;
        reason = end(&live, events) => Some(reason),
        () = vm.host.stopping.cancelled() => None,
        () = tend(&vm, &live) => None,
        () = keep_news(&vm, heard) => None,
        () = end_patience(&vm, &live) => None,
        () = play_hardware(&vm) => None,
        _ = status::follow(&channels.status, messages, listen) => None,
    };
    if let Some(reason) = ended {
        vm.process_ended(&live, reason).await;
    }
}

/// Returns when the process has ended, with what it said of that.
async fn end(live: &Live, events: Events) -> Option<ExitReason> {
    // A task of its own: a guest that causes events without end takes no time of those beside it.
    let mut told = AbortOnDropHandle::new(tokio::spawn(events.exit_reason()));
    let ended = async {
        live.process.ended().await;
        tokio::time::sleep(LAST_WORDS_LIMIT).await;
    };
    tokio::select! {
        biased;
        reason = &mut told => {
            live.process.ended().await;
            reason.ok()
        }
        () = ended => None,
    }
}

/// Writes down what the guest said last, for a node that starts while the guest runs.
async fn keep_news(vm: &Vm, mut heard: watch::Receiver<()>) {
    while heard.changed().await.is_ok() {
        let (dir, guest) = (vm.dir.clone(), vm.view().guest);
        warn_of(vm, "keep a guest's status", blocking(move || dir.write_guest(&guest)).await);
    }
    std::future::pending::<()>().await;
}

/// Never returns.
async fn play_hardware(vm: &Vm) {
    match &vm.host.development {
        Some(platform) => {
            development::serve(&vm.dir.channels().tee, &vm.dir.registers(), platform).await;
        }
        None => std::future::pending().await,
    }
}

/// Keeps the console log short, and lets a guest go on that was halted because the disk was full.
async fn tend(vm: &Vm, live: &Live) {
    loop {
        tokio::time::sleep(TEND_INTERVAL).await;
        let dir = vm.dir.clone();
        warn_of(vm, "shorten a console log", blocking(move || dir.rotate_serial()).await);
        if live.resume_after_full_disk().await {
            tracing::warn!(vm = %vm.id, "the node's disk was full and halted a VM; trying to go on");
        }
    }
}

fn warn_of(vm: &Vm, what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(vm = %vm.id, %error, "cannot {what}");
    }
}

/// Never returns: the end of the process is seen elsewhere.
async fn end_patience(vm: &Arc<Vm>, live: &Arc<Live>) {
    loop {
        let overdue = live.stop_is_due().await;
        tracing::info!(vm = %vm.id, ?overdue, "the guest did not power off in time");
        match overdue {
            Overdue::KeepRunning => vm.shutdown_lapsed(live).await,
            Overdue::TakePower => {
                if let Err(error) = live.power_off().await {
                    tracing::error!(vm = %vm.id, error = &error as &dyn std::error::Error, "cannot end a VM");
                }
            }
        }
    }
}
