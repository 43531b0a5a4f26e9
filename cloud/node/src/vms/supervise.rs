//! What goes on beside a running VM: its end, its words, its console log, its deadline.

use std::sync::Arc;
use std::time::Duration;

use cloister_guest_channel::status::NodeMessage;
use tokio::sync::mpsc;

use super::live::Live;
use super::vm::Vm;
use super::{blocking, status};

/// Between two looks at the length of the console log.
const SERIAL_INTERVAL: Duration = Duration::from_secs(10);

/// Accompanies a VM until its process ends or the node stops.
pub(super) async fn run(vm: Arc<Vm>, live: Arc<Live>, messages: mpsc::Receiver<NodeMessage>, _workspace: i64) {
    let channels = vm.dir.channels();
    let ended = async {
        tokio::select! {
            () = live.process.ended() => true,
            () = vm.host.stopping.cancelled() => false,
            () = keep_serial_bounded(&vm) => false,
            () = take_power_when_due(&vm, &live) => false,
            _ = status::follow(&channels.status, messages, |status| vm.guest_said(status)) => false,
        }
    };
    if ended.await {
        vm.process_ended(&live).await;
    }
}

async fn keep_serial_bounded(vm: &Vm) {
    loop {
        tokio::time::sleep(SERIAL_INTERVAL).await;
        let dir = vm.dir.clone();
        if let Err(error) = blocking(move || dir.rotate_serial()).await {
            tracing::warn!(vm = %vm.id, error = &error as &dyn std::error::Error, "cannot shorten a console log");
        }
    }
}

/// Never returns: the end of the process is seen elsewhere.
async fn take_power_when_due(vm: &Vm, live: &Live) {
    loop {
        live.stop_is_due().await;
        tracing::info!(vm = %vm.id, "the guest did not power off in time");
        if let Err(error) = live.power_off().await {
            tracing::error!(vm = %vm.id, error = &error as &dyn std::error::Error, "cannot end a VM");
        }
    }
}
