//! What any process between a client and an upstream costs here: bytes go through it, and nothing is looked at.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::Failure;

/// Relays for ever.
pub(crate) async fn serve(address: SocketAddr, upstream: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (client, _) = listener.accept().await?;
        tokio::spawn(connection(client, upstream));
    }
}

async fn connection(mut client: TcpStream, upstream: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
