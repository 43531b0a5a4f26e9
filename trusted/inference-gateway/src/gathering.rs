//! Short messages in one piece.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// Most bytes that are copied for it: a head with a short body, or an event of a stream.
const SHORT: usize = 2 << 10;

/// A connection that sends short parts as one: for a kernel that is given them one by one (`writev`) each takes longer than
/// to copy them. Whoever would copy long ones, too, keeps memory for them.
#[derive(Debug)]
pub(crate) struct Gathering<C>(pub(crate) C);

impl<C: Write + Unpin> Write for Gathering<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let connection = Pin::new(&mut self.0);
        let mut gathered = [0; SHORT];
        match gather(parts, &mut gathered) {
            Some(gathered) => connection.poll_write(context, gathered),
            None => connection.poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// All parts one behind the other, if they have room.
fn gather<'a>(parts: &[IoSlice<'_>], room: &'a mut [u8; SHORT]) -> Option<&'a [u8]> {
    let mut length = 0;
    for part in parts {
        room.get_mut(length..length + part.len())?.copy_from_slice(part);
        length += part.len();
    }
    room.get(..length)
}

impl<C: Read + Unpin> Read for Gathering<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<C: Connection> Connection for Gathering<C> {
    fn connected(&self) -> Connected {
        self.0.connected()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_comes_out(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1200), 0..5)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (here, mut there) = duplex(1 << 20);
                let mut here = Gathering(TokioIo::new(here));
                let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
                let all = parts.concat();
                let written = poll_fn(|context| Pin::new(&mut here).poll_write_vectored(context, &slices));
                let written = written.await.unwrap();
                drop(here);
                let mut came = Vec::new();
                there.read_to_end(&mut came).await.unwrap();
                prop_assert_eq!(came.len(), written);
                prop_assert!(all.starts_with(&came));
                // Long ones may come in parts.
                prop_assert!(written == all.len() || all.len() > SHORT);
                Ok(())
            })?;
        }
    }
}
