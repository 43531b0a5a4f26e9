//! The development TEE's channel: the guest asks, the node answers, one JSON object per line each, over
//! the virtio serial port [`PORT`].
//!
//! The node plays the hardware there: it keeps the guest's registers, takes extensions of RTMR 2 and 3,
//! and signs quotes. Requests are numbered by the guest, and a repeated one has no further effect, so a
//! guest that got no answer (the node was restarted) sends the same line again. A line longer than
//! [`MAX_LINE_BYTES`] ends the connection; receivers skip what is not JSON.

use serde::{Deserialize, Serialize};

/// Name of the virtio serial port.
pub const PORT: &str = "cloister.tee";
/// Longest line that either side accepts, in bytes, newline included.
pub const MAX_LINE_BYTES: usize = 256 * 1024;
/// Most extensions of one register in one boot.
pub const MAX_EXTENSIONS: u32 = 4096;

/// A line from the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Repeated in the answer.
    pub id: u64,
    /// What is asked for.
    #[serde(flatten)]
    pub call: Call,
}

/// What a guest can ask its hardware for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// The log of what the launch measured, in the TCG's crypto-agile binary form.
    BootLog,
    /// Measure something into a register.
    Extend {
        /// 2 or 3.
        register: u32,
        /// Extensions of this register that this boot of the guest made before. One that was made already
        /// is confirmed again if its digest is the same, and refused otherwise.
        index: u32,
        /// SHA-384, 96 hex digits.
        digest: String,
    },
    /// Sign a quote.
    Quote {
        /// 64 bytes, 128 hex digits.
        report_data: String,
    },
}

/// A line from the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// That of the request.
    pub id: u64,
    /// The answer.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The boot log.
    BootLog {
        /// Base64.
        log: String,
    },
    /// The register was extended.
    Extended,
    /// A quote.
    Quote {
        /// Hex of a TDX quote, version 4.
        quote: String,
    },
    /// The request was refused, and had no effect. Later it may be granted: the node's disk may have been
    /// full, or its platform not certified yet.
    Refused {
        /// Why, for the guest's log.
        reason: String,
    },
}
