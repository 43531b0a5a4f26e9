//! Whole answers, half ones, and what is none.

use super::*;
use crate::stream::Events;

const ROLE: &str =
    r#"{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
const HELLO: &str = r#"{"id":"c","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}"#;
const STOP: &str = r#"{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const USAGE: &str = r#"{"id":"c","choices":[],"usage":{"prompt_tokens":1}}"#;

fn follow(stream: &[u8]) -> (Vec<Verdict>, ChatStream) {
    let (mut events, mut chat, mut verdicts) = (Events::default(), ChatStream::default(), Vec::new());
    events.push(stream);
    while let Some(event) = events.next() {
        verdicts.push(chat.judge(&event.unwrap()));
    }
    if let Some(event) = events.finish() {
        verdicts.push(chat.judge(&event));
    }
    (verdicts, chat)
}

fn wire(events: &[&str]) -> String {
    events.iter().fold(String::new(), |stream, data| stream + "data: " + data + "\n\n")
}

#[test]
fn a_whole_answer() {
    let (verdicts, chat) = follow(wire(&[ROLE, HELLO, STOP, USAGE, "[DONE]"]).as_bytes());
    let frame = Verdict::Frame;
    assert_eq!(verdicts, [frame.clone(), Verdict::Content, frame.clone(), frame, Verdict::Done]);
    assert_eq!(chat.ended(), Ended::Complete);
    assert_eq!(chat.usage().map(RawValue::get), Some(r#"{"prompt_tokens":1}"#));
    assert_eq!(chat.id(), Some("c"));
}

#[test]
fn half_answers_are_not_whole() {
    for (events, ended) in [
        (vec![ROLE, HELLO, STOP], Ended::WithoutTerminator),
        (vec![ROLE, HELLO], Ended::Truncated),
        (vec![ROLE, HELLO, "[DONE]"], Ended::Truncated),
        (vec!["[DONE]"], Ended::Truncated),
        (vec![], Ended::Truncated),
    ] {
        assert_eq!(follow(wire(&events).as_bytes()).1.ended(), ended, "{events:?}");
    }
    let second = r#"{"choices":[{"index":1,"delta":{"content":"x"}}]}"#;
    assert_eq!(follow(wire(&[HELLO, second, STOP, "[DONE]"]).as_bytes()).1.ended(), Ended::Truncated);
}

#[test]
fn every_choice_that_was_asked_for_has_to_come() {
    let of = |index: u32, reason: &str| {
        format!(r#"{{"choices":[{{"index":{index},"delta":{{"content":"x"}},"finish_reason":{reason}}}]}}"#)
    };
    let (first, second) = (of(0, "\"stop\""), of(1, "\"stop\""));
    for (asked, events, ended) in [
        (2, vec![&first], Ended::Truncated),
        (2, vec![&second], Ended::Truncated),
        (2, vec![&first, &of(1, "null")], Ended::Truncated),
        (2, vec![&second, &first], Ended::WithoutTerminator),
        (0, vec![&first], Ended::WithoutTerminator),
        (1, vec![&first, &second], Ended::WithoutTerminator),
    ] {
        let mut chat = ChatStream::of(asked);
        for data in events {
            chat.follow(data.as_bytes());
        }
        assert_eq!(chat.ended(), ended, "{asked}");
    }
}

#[test]
fn a_long_reason_is_not_kept() {
    let reason = "x".repeat(65);
    let data = format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#);
    let mut chat = ChatStream::default();
    chat.follow(data.as_bytes());
    assert_eq!(
        (chat.finish_reasons().collect::<Vec<_>>(), chat.ended()),
        (vec![""], Ended::WithoutTerminator)
    );
}

#[test]
fn what_is_no_chunk_is_broken() {
    for data in ["{", "[]", "{}", "nonsense", r#"{"choices":3}"#, r#"{"choices":[{"index":4000000000}]}"#] {
        assert_eq!(follow(wire(&[data]).as_bytes()).0, [Verdict::Broken], "{data}");
    }
    assert_eq!(follow(wire(&[STOP, "[DONE]", HELLO]).as_bytes()).0.last(), Some(&Verdict::Broken));
}

#[test]
fn an_error_in_the_stream_is_one() {
    let (verdicts, chat) = follow(wire(&[ROLE, r#"{"error":{"message":"no"}}"#]).as_bytes());
    assert_eq!(verdicts, [Verdict::Frame, Verdict::Error(r#"{"message":"no"}"#.into())]);
    assert!(!chat.has_content());
    assert_eq!(follow(wire(&[r#"{"error":null,"choices":[]}"#]).as_bytes()).0, [Verdict::Frame]);
    assert_eq!(follow(b": ping\n\n").0, [Verdict::Comment]);
}

#[test]
fn tool_calls_and_texts_are_content() {
    for data in [
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}"#,
        r#"{"choices":[{"index":0,"text":"x"}]}"#,
    ] {
        assert_eq!(follow(wire(&[data]).as_bytes()).0, [Verdict::Content], "{data}");
    }
}

/// Cut at every byte, an answer is never taken for a whole one before its last finish reason was there.
#[test]
fn cut_anywhere() {
    let whole = wire(&[ROLE, HELLO, STOP, USAGE, "[DONE]"]);
    let finished = wire(&[ROLE, HELLO, STOP]).len() - 1;
    for cut in 0..whole.len() {
        let (verdicts, chat) = follow(&whole.as_bytes()[..cut]);
        assert!(!verdicts.contains(&Verdict::Broken), "{cut}");
        assert_eq!(chat.ended() == Ended::Truncated, cut < finished, "{cut}");
    }
}
