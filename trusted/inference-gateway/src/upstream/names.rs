//! Where the names of upstreams lead.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use futures_util::future;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

/// The addresses of a name that is this machine's (RFC 6761, 6.3): not every resolver knows such names, and a hostile one would
/// answer otherwise.
pub(crate) fn of_this_machine(name: &str) -> Option<[IpAddr; 2]> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_its = name == "localhost" || name.ends_with(".localhost");
    is_its.then_some([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
}

/// Asks the system, but for names that are this machine's.
#[derive(Debug, Clone)]
pub(super) struct Names(GaiResolver);

impl Names {
    pub(super) fn new() -> Self {
        Self(GaiResolver::new())
    }
}

impl Service<Name> for Names {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        if let Some(addresses) = of_this_machine(name.as_str()) {
            // Whoever connects knows the port.
            let addresses = addresses.map(|address| SocketAddr::new(address, 0)).to_vec();
            return Box::pin(future::ready(Ok(addresses.into_iter())));
        }
        let found = self.0.call(name);
        Box::pin(async move { Ok(found.await?.collect::<Vec<_>>().into_iter()) })
    }
}
