//! The framing of container logs in Docker's API: channel, three zero bytes, length, message.

use bytes::{Buf as _, Bytes, BytesMut};

/// Longest message that is accepted, in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
const HEADER_BYTES: usize = 8;

/// Where a message was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Channel {
    /// The name on the wire.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One message of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) channel: Channel,
    pub(crate) message: Bytes,
}

/// A stream that is not framed as promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log stream is malformed")]
pub(crate) struct MalformedFrames;

/// Decodes a stream that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pending: BytesMut,
}

impl Frames {
    /// Takes the next piece of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole message, if it has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, MalformedFrames> {
        let Some([channel, _, _, _, length @ ..]) = self.pending.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let channel = match channel {
            0 | 1 => Channel::Stdout,
            2 => Channel::Stderr,
            _ => return Err(MalformedFrames),
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| MalformedFrames)?;
        if length > MAX_MESSAGE_BYTES {
            return Err(MalformedFrames);
        }
        if self.pending.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        self.pending.advance(HEADER_BYTES);
        Ok(Some(Frame { channel, message: self.pending.split_to(length).freeze() }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(messages: &[(bool, Vec<u8>)]) -> Vec<u8> {
        messages
            .iter()
            .flat_map(|(error, message)| {
                let length = u32::try_from(message.len()).unwrap().to_be_bytes();
                [&[if *error { 2 } else { 1 }, 0, 0, 0], length.as_slice(), message].concat()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn decodes_what_was_framed_however_it_arrives(
            messages in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..8),
            chunk in 1usize..20,
        ) {
            let mut frames = Frames::default();
            let mut decoded = Vec::new();
            for piece in encode(&messages).chunks(chunk) {
                frames.push(piece);
                while let Some(frame) = frames.next().unwrap() {
                    decoded.push((frame.channel == Channel::Stderr, frame.message.to_vec()));
                }
            }
            prop_assert_eq!(decoded, messages);
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let mut frames = Frames::default();
            frames.push(&bytes);
            while let Ok(Some(_)) = frames.next() {}
        }
    }

    #[test]
    fn refuses_endless_messages_and_unknown_channels() {
        for head in [[1, 0, 0, 0, 0xFF, 0, 0, 0], [3, 0, 0, 0, 0, 0, 0, 0]] {
            let mut frames = Frames::default();
            frames.push(&head);
            assert_eq!(frames.next(), Err(MalformedFrames));
        }
    }
}
