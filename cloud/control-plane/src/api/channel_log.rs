//! What all containers of a CVM print on one channel.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use serde::Deserialize;

use super::Api;
use super::logs::{LogQuery, is_container};
use crate::fleet::NodeStream;
use crate::operations::NodeCallError;
use crate::store::CvmRow;

/// Most containers whose logs are read together.
const MAX_CONTAINERS: usize = 32;
/// Longest line of a guest's log, in bytes; what is longer is left out.
const MAX_LINE: usize = 1024 * 1024;

/// Where containers print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Channel {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// The channel of every container, one container after the other; of a log that is followed as it comes.
    pub(super) async fn open(
        self,
        api: &Api,
        cvm: &CvmRow,
        query: LogQuery,
    ) -> Result<BoxStream<'static, Bytes>, NodeCallError> {
        let document = api.fleet.containers(cvm.node_id, cvm.vm_uuid).await?;
        let wanted = query.without_form();
        let mut logs = Vec::new();
        for id in containers(&document) {
            // One that has just gone keeps nobody from the others.
            logs.extend(api.fleet.container_log(cvm.node_id, cvm.vm_uuid, &id, &wanted).await.ok());
        }
        let is_followed = query.follow;
        let messages = logs.into_iter().map(|log| lines(log).boxed());
        let messages = if is_followed {
            stream::select_all(messages).boxed()
        } else {
            stream::iter(messages.collect::<Vec<_>>()).flatten().boxed()
        };
        let shown = move |line: Vec<u8>| {
            let message = self.message_of(&line)?;
            Some(Bytes::from(query.message(self.as_str(), &message)))
        };
        Ok(messages.filter_map(move |line| std::future::ready(shown(line))).boxed())
    }

    /// The message of a line, if it is of this channel.
    fn message_of(self, line: &[u8]) -> Option<Vec<u8>> {
        #[derive(Deserialize)]
        struct Line<'a> {
            channel: &'a str,
            message: &'a str,
        }
        let line: Line<'_> = serde_json::from_slice(line).ok()?;
        (line.channel == self.as_str()).then(|| BASE64_STANDARD.decode(line.message).ok())?
    }
}

/// The ids in a guest's list of containers that can be asked for.
fn containers(document: &serde_json::Value) -> Vec<String> {
    let listed = document["containers"].as_array().into_iter().flatten();
    let ids = listed.filter_map(|container| container["id"].as_str());
    ids.filter(|id| is_container(id)).take(MAX_CONTAINERS).map(ToOwned::to_owned).collect()
}

/// The lines of a log as they come.
fn lines(log: NodeStream) -> impl Stream<Item = Vec<u8>> + Send {
    let mut splitter = Splitter::default();
    let pieces = log.body.take_while(|piece| std::future::ready(piece.is_ok()));
    pieces.flat_map(move |piece| stream::iter(splitter.push(&piece.unwrap_or_default())))
}

/// Cuts pieces into lines.
#[derive(Default)]
struct Splitter {
    begun: Vec<u8>,
    /// The line is too long; its rest is left out too.
    is_skipping: bool,
}

impl Splitter {
    fn push(&mut self, piece: &[u8]) -> Vec<Vec<u8>> {
        let mut whole = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.begun.len() + part.len() > MAX_LINE {
                self.begun.clear();
                self.is_skipping = true;
            }
            if !self.is_skipping {
                self.begun.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.begun);
                whole.extend((!std::mem::take(&mut self.is_skipping)).then_some(line));
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_told_apart_by_their_channel() {
        let line = br#"{"channel":"stderr","message":"aGkK"}"#;
        assert_eq!(Channel::Stderr.message_of(line), Some(b"hi\n".to_vec()));
        assert_eq!(Channel::Stdout.message_of(line), None);
        for other in ["", "{}", r#"{"channel":"stderr","message":"?"}"#, "x"] {
            assert_eq!(Channel::Stderr.message_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn only_names_become_parts_of_paths() {
        let document =
            json!({"containers": [{"id": "a1"}, {"id": "../x"}, {"id": ""}, {}, {"id": 7}, {"id": "b.2"}]});
        assert_eq!(containers(&document), ["a1", "b.2"]);
        assert!(containers(&json!([])).is_empty());
        let many: Vec<_> = (0..100).map(|n| json!({"id": format!("c{n}")})).collect();
        assert_eq!(containers(&json!({"containers": many})).len(), MAX_CONTAINERS);
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_with_its_rest() {
        let mut splitter = Splitter::default();
        assert!(splitter.push(&vec![b'x'; MAX_LINE]).is_empty());
        assert!(splitter.push(b"xyz").is_empty());
        assert_eq!(splitter.push(b"rest\nnext\n"), [b"next\n".to_vec()]);
    }

    proptest! {
        #[test]
        fn pieces_give_the_same_lines(text in "[a\n]{0,60}", cuts in proptest::collection::vec(0..61_usize, 0..5)) {
            let mut splitter = Splitter::default();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let found: Vec<_> =
                cuts.windows(2).flat_map(|cut| splitter.push(&text.as_bytes()[cut[0]..cut[1]])).collect();
            let expected: Vec<_> =
                text.as_bytes().split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n")).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
