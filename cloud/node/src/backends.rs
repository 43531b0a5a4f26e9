//! What the ingress needs to know about the VMs of this node, and nothing more.

use std::io;

use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use uuid::Uuid;

/// The VMs behind the ingress.
pub trait Backends: Send + Sync + 'static {
    /// The running VM for an identifier of a host name: the hex form of an application or of an
    /// instance, in lower case. `None` when no such VM runs here. Of several VMs of one application,
    /// one whose boot is done is preferred.
    fn resolve(&self, id: &str) -> Option<Uuid>;

    /// Opens a connection to a TCP port of the guest.
    ///
    /// Software between the node and the guest may accept a connection before the guest does: a closed
    /// port can show as an immediate end of file instead of an error. Fails with
    /// [`io::ErrorKind::NotFound`] when the VM does not run, and with [`io::ErrorKind::QuotaExceeded`]
    /// when too many ports of it are in use.
    fn connect(&self, vm: Uuid, port: u16) -> BoxFuture<'_, io::Result<TcpStream>>;
}
