//! Short messages in one piece.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes that are copied for it: a head with a short body, or an event of a stream.
const SHORT: usize = 2 << 10;

/// A connection that puts short parts one behind the other and sends them as one. The kernel takes longer for several
/// (`writev`) than the copy does. What hyper would do instead (`writev(false)`) copies long parts as well, into memory that
/// it keeps.
#[derive(Debug)]
pub(crate) struct Gathering<C>(pub(crate) C);

impl<C: AsyncWrite + Unpin> AsyncWrite for Gathering<C> {
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
        if let [part] = parts {
            return connection.poll_write(context, part);
        }
        match gather(parts, &mut [0; SHORT]) {
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
    let length = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add);
    let room = room.get_mut(..length)?;
    let mut rest = &mut *room;
    for part in parts {
        let place;
        (place, rest) = rest.split_at_mut_checked(part.len())?;
        place.copy_from_slice(part);
    }
    Some(room)
}

impl<C: AsyncRead + Unpin> AsyncRead for Gathering<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Connection for Gathering<TcpStream> {
    fn connected(&self) -> Connected {
        self.0.connected()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use proptest::prelude::*;

    use super::*;

    /// Takes so many bytes of each write at most, and notes how many parts each write had.
    struct Noting {
        most: usize,
        taken: Vec<u8>,
        writes: Vec<usize>,
    }

    impl AsyncWrite for Noting {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(context, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<_> = parts.iter().flat_map(|part| part.iter().copied()).take(self.most).collect();
            self.taken.extend(&all);
            self.writes.push(parts.len());
            Poll::Ready(Ok(all.len()))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        #[test]
        fn what_is_short_is_one_part_and_all_of_it_arrives(
            lengths in prop::collection::vec(prop_oneof![0..1200_usize, Just(SHORT / 2), Just(SHORT / 2 + 1)], 1..5),
            most in prop_oneof![1..3000_usize, Just(usize::MAX)],
        ) {
            let message: Vec<u8> = (0..=250).cycle().take(lengths.iter().sum()).collect();
            let mut connection = Gathering(Noting { most, taken: Vec::new(), writes: Vec::new() });
            prop_assert!(connection.is_write_vectored());
            let mut sent = 0;
            while sent < message.len() {
                // What is left of each part, as callers go on after a write that took less.
                let mut at = 0;
                let parts: Vec<_> = lengths.iter().filter_map(|length| {
                    let part = message[at..at + length].get(sent.saturating_sub(at)..).unwrap_or_default();
                    at += length;
                    (!part.is_empty()).then(|| IoSlice::new(part))
                }).collect();
                let write = poll_fn(|context| Pin::new(&mut connection).poll_write_vectored(context, &parts));
                let written = futures_util::FutureExt::now_or_never(write).unwrap().unwrap();
                let is_short = message.len() - sent <= SHORT;
                let expected = if is_short { 1 } else { parts.len() };
                prop_assert_eq!(connection.0.writes.last(), Some(&expected));
                sent += written;
            }
            prop_assert_eq!(connection.0.taken, message);
        }
    }
}
