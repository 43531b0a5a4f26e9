//! Reads a TLS `ClientHello` without answering it, so that the connection can still go anywhere.

use std::io;

use rustls::server::{Accepted, AcceptedAlert, Acceptor};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Most bytes that a client may send before its `ClientHello` is complete. Post-quantum key shares and
/// many extensions stay below a quarter of it.
const MAX_HELLO_BYTES: usize = 16 * 1024;
const READ_BYTES: usize = 2 * 1024;

/// What a client said first.
pub(super) struct ClientHello {
    /// The server name that it asked for, if any.
    pub(super) server_name: Option<String>,
    /// Everything read so far: the `ClientHello` and possibly more.
    pub(super) bytes: Vec<u8>,
}

/// Why there is no `ClientHello`.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelloError {
    /// The connection broke or ended early.
    #[error("the connection ended before the ClientHello did")]
    Io(#[from] io::Error),
    /// The limit was reached.
    #[error("the ClientHello is longer than {MAX_HELLO_BYTES} bytes")]
    TooLong,
    /// What came is no `ClientHello`.
    #[error("the client speaks no TLS")]
    Tls(#[source] rustls::Error),
}

/// Reads until the `ClientHello` is complete.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<ClientHello, HelloError> {
    let mut bytes = Vec::with_capacity(READ_BYTES);
    let mut acceptor = Acceptor::default();
    loop {
        let known = bytes.len();
        if known >= MAX_HELLO_BYTES {
            return Err(HelloError::TooLong);
        }
        let room = (MAX_HELLO_BYTES - known).min(READ_BYTES) as u64;
        if (&mut *stream).take(room).read_buf(&mut bytes).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if let Some(accepted) = feed(&mut acceptor, bytes.get(known..).unwrap_or_default())? {
            let server_name = accepted.client_hello().server_name().map(str::to_owned);
            return Ok(ClientHello { server_name, bytes });
        }
    }
}

fn feed(acceptor: &mut Acceptor, mut news: &[u8]) -> Result<Option<Accepted>, HelloError> {
    while !news.is_empty() {
        acceptor.read_tls(&mut news)?;
        let accepted = acceptor.accept().map_err(|(error, _): (_, AcceptedAlert)| HelloError::Tls(error))?;
        if accepted.is_some() {
            return Ok(accepted);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    fn hello(name: &'static str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let mut client = ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn read_all(bytes: &[u8]) -> Result<ClientHello, HelloError> {
        block_on(read(&mut &bytes[..]))
    }

    #[test]
    fn too_long_plain_text_and_empty() {
        let endless =
            [&[22u8, 3, 1, 0x3f, 0xff, 1, 0, 0xff, 0xff][..], &vec![0; 2 * MAX_HELLO_BYTES]].concat();
        assert!(matches!(read_all(&endless), Err(HelloError::TooLong | HelloError::Tls(_))));
        assert!(matches!(read_all(b"GET / HTTP/1.1\r\n\r\n"), Err(HelloError::Tls(_))));
        assert!(matches!(read_all(b""), Err(HelloError::Io(_))));
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_make_the_same_hello(cut_a in 1usize..200, cut_b in 1usize..200) {
            let bytes = hello("name.apps.localhost");
            let (first, rest) = bytes.split_at(cut_a.min(bytes.len()));
            let (second, third) = rest.split_at(cut_b.min(rest.len()));
            let hello = block_on(read(&mut first.chain(second).chain(third))).unwrap();
            prop_assert_eq!(hello.server_name.as_deref(), Some("name.apps.localhost"));
            prop_assert_eq!(hello.bytes, bytes);
        }

        #[test]
        fn a_damaged_hello_is_an_answer_or_an_error(at in 0usize..200, value: u8, cut in 0usize..600) {
            let mut bytes = hello("name.apps.localhost");
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            bytes.truncate(cut);
            let _ = read_all(&bytes);
        }

        #[test]
        fn any_bytes_are_an_answer_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = read_all(&bytes);
        }
    }
}
