//! Streamed answers: cut into events, judged, and never passed on half.

mod chat;
mod events;

pub use chat::{ChatStream, Choice, Chunk, Ended, MAX_CHOICES, Message, Verdict};
pub use events::{Event, Events, TooLong};
