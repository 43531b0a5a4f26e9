//! Bodies in pieces: what is given at once has a largest size.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// Most bytes that a connection is given at once. It comes back for more when there is room: so a slow client is told from
/// one that takes nothing, and what was given from what is still here.
pub(crate) const PIECE: usize = 64 << 10;

/// A body whose frames have at most [`PIECE`] bytes.
#[derive(Debug)]
pub(crate) struct Pieces<B> {
    body: B,
    /// Of a frame that is longer than a piece.
    rest: Bytes,
}

impl<B> Pieces<B> {
    pub(crate) const fn of(body: B) -> Self {
        Self { body, rest: Bytes::new() }
    }

    fn next(&mut self, mut data: Bytes) -> Frame<Bytes> {
        let piece = data.split_to(data.len().min(PIECE));
        self.rest = data;
        Frame::data(piece)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Pieces<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            return Poll::Ready(Some(Ok(self.next(rest))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(
            frame
                .map(|frame| Ok(frame?.into_data().map_or_else(|trailers| trailers, |data| self.next(data)))),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut size, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if rest > 0 {
            // It may not be less than the lower one at any time.
            if let Some(upper) = size.upper() {
                size.set_upper(upper + rest);
            }
            size.set_lower(size.lower() + rest);
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    #[tokio::test]
    async fn a_long_frame_is_given_in_pieces() {
        for length in [0, 1, PIECE, PIECE + 1, 3 * PIECE + 7] {
            let bytes: Bytes = (0..length).map(|number| number.to_le_bytes()[0]).collect();
            let mut pieces = Pieces::of(Full::new(bytes.clone()));
            let (mut all, mut left) = (Vec::new(), length as u64);
            while let Some(frame) = pieces.frame().await {
                let piece = frame.unwrap().into_data().unwrap();
                assert!(piece.len() <= PIECE);
                all.extend(&piece);
                left -= piece.len() as u64;
                assert_eq!(pieces.size_hint().exact(), Some(left));
                assert_eq!(pieces.is_end_stream(), left == 0);
            }
            assert_eq!(all, bytes);
        }
    }
}
