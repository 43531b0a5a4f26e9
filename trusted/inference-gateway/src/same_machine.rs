//! Connections that do not leave this machine.

use std::net::SocketAddr;

use rustix::net::sockopt::set_tcp_congestion;
use tokio::net::TcpStream;

/// A congestion control that every Linux has, and that sends at once whatever the window takes (RFC 5681).
const UNPACED: &str = "reno";

/// Has a connection to this machine itself do without pacing: no network is between the two that could be congested, and
/// with BBR, which some systems use for everything, the kernel keeps accounts and timers for each write.
pub(crate) fn unpace(stream: &TcpStream) {
    if let (Ok(own), Ok(peer)) = (stream.local_addr(), stream.peer_addr())
        && is_here(own, peer)
    {
        // It works all the same without.
        let _ = set_tcp_congestion(stream, UNPACED);
    }
}

fn is_here(own: SocketAddr, peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback() || own.ip() == peer.ip()
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::tcp_congestion;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn what_stays_here_is_told_by_its_addresses() {
        let pairs = [
            ("127.0.0.1:1", "127.0.0.1:2", true),
            ("[::1]:1", "[::1]:2", true),
            ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.2]:2", true),
            ("192.0.2.1:1", "192.0.2.1:2", true),
            ("192.0.2.1:1", "192.0.2.2:1", false),
            ("[2001:db8::1]:1", "[2001:db8::2]:1", false),
        ];
        for (own, peer, expected) in pairs {
            assert_eq!(is_here(own.parse().unwrap(), peer.parse().unwrap()), expected, "{own} {peer}");
        }
    }

    #[tokio::test]
    async fn a_connection_to_this_machine_is_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        unpace(&stream);
        assert_eq!(tcp_congestion(&stream).unwrap(), UNPACED);
    }
}
