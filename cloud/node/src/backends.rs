//! What the ingress needs to know about the VMs of this node, and nothing more.

use std::io;

use cloister_node_api::{VmHealth, VmReport, VmState};
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::flows::Flow;

/// The VMs behind the ingress.
pub trait Backends: Send + Sync + 'static {
    /// The VMs of this node for an identifier of a host name: the hex form of an application or of an
    /// instance, in lower case. Those that are off are left out.
    fn resolve(&self, id: &str) -> Vec<Backend>;

    /// The right to one stream with a VM, such as a request with its answer; `None` when it is not ready
    /// (any more). It counts for who waits for the VM to fall silent until it is dropped.
    fn begin(&self, vm: Uuid) -> Option<Flow>;

    /// Opens a connection to a TCP port of the guest.
    ///
    /// Software between the node and the guest may accept a connection before the guest does: a closed
    /// port can show as an immediate end of file instead of an error. Fails with
    /// [`io::ErrorKind::NotFound`] when the VM does not run, and with [`io::ErrorKind::QuotaExceeded`]
    /// when too many ports of it are in use.
    fn connect(&self, vm: Uuid, port: u16) -> BoxFuture<'_, io::Result<TcpStream>>;
}

/// A VM that an identifier leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    /// Which one.
    pub vm: Uuid,
    /// Whether requests may be sent to it.
    pub readiness: Readiness,
    /// Only its guest says that the identifier is its own, and a guest can say anything: it gets nothing unless the
    /// control plane names it for the identifier, too.
    pub is_claim: bool,
}

/// Whether requests may be sent to a VM, and why not. The order is that of hope: of several VMs, the
/// greatest one speaks for the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Readiness {
    /// Its application failed, or its boot did.
    Unhealthy,
    /// It goes out of service: for an update, a move, a stop.
    Leaving,
    /// It boots, or its application is not up yet.
    Starting,
    /// They may.
    Ready,
}

impl Readiness {
    /// Reads a report; `None` when the VM is off, and was not taken out of service to come back.
    #[must_use]
    pub fn of(report: &VmReport) -> Option<Self> {
        if report.is_ready() {
            return Some(Self::Ready);
        }
        match report.state {
            _ if report.draining => Some(Self::Leaving),
            VmState::Stopping => Some(Self::Leaving),
            VmState::Stopped | VmState::Exited => None,
            VmState::Running if report.boot_error.is_some() => Some(Self::Unhealthy),
            VmState::Running if report.health == Some(VmHealth::Unhealthy) => Some(Self::Unhealthy),
            VmState::Running => Some(Self::Starting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: VmState, boot_progress: &str, health: Option<VmHealth>) -> VmReport {
        VmReport {
            boot_progress: Some(boot_progress.to_owned()),
            health,
            ..VmReport::new(Uuid::nil(), state)
        }
    }

    #[test]
    fn a_vm_is_ready_or_says_why_not() {
        use {Readiness as R, VmHealth as H, VmState as S};
        for (state, progress, health, expected) in [
            (S::Running, "done", None, Some(R::Ready)),
            (S::Running, "done", Some(H::Healthy), Some(R::Ready)),
            (S::Running, "done", Some(H::Starting), Some(R::Starting)),
            (S::Running, "done", Some(H::Unhealthy), Some(R::Unhealthy)),
            (S::Running, "booting", None, Some(R::Starting)),
            (S::Stopping, "done", Some(H::Healthy), Some(R::Leaving)),
            (S::Stopped, "done", None, None),
            (S::Exited, "done", None, None),
        ] {
            let report = report(state, progress, health);
            assert_eq!(Readiness::of(&report), expected, "{report:?}");
            let draining = VmReport { draining: true, ..report.clone() };
            assert_eq!(Readiness::of(&draining), Some(R::Leaving), "{draining:?}");
            let failed = VmReport { boot_error: Some("no keys".to_owned()), ..report };
            if progress == "booting" {
                assert_eq!(Readiness::of(&failed), Some(R::Unhealthy));
            }
        }
    }
}
