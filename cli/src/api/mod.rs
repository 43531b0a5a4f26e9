//! A client of the management API.
//!
//! Documents stay JSON values, so that `--json` prints exactly what the server said; [`read`] gives them
//! the types of the wire where a command looks into them.

mod base_url;
mod client;
mod door;
mod error_body;
mod events;

pub(crate) use base_url::{BaseUrl, is_loopback, kept_on_this_machine};
pub(crate) use client::{Client, Upload};
pub(crate) use door::{Answer, Door, Pace, expired};
pub(crate) use events::{Event, Events};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;

/// Reads a document. Fails where the server speaks another version of the API than this program.
pub(crate) fn read<T: DeserializeOwned>(document: &Value) -> Result<T, Failure> {
    T::deserialize(document).map_err(|error| {
        Failure::local("the server's answer has an unexpected shape", error)
            .hint("`--json` prints the answer as it is; compare `cloister version` with the server's version")
    })
}
