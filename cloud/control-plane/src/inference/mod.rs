//! What an inference gateway needs of a control plane: who may ask, and who pays.
//!
//! The endpoints are in `api/inference`, what was told in `store/inference.rs`. Without a control token they do not
//! exist.

mod token;

use std::num::NonZeroU32;
use std::path::PathBuf;

pub(crate) use token::ControlToken;
pub use token::ControlTokenError;

/// How gateways are served.
#[derive(Debug, Clone)]
pub struct InferenceConfig {
    /// File with the token that gateways present: 32 to 512 printable ASCII characters, a line break may follow.
    pub control_token_file: PathBuf,
    /// Requests that each API key may begin in a minute; `None` is no limit. Every control plane of an installation
    /// counts for itself.
    pub requests_per_minute: Option<NonZeroU32>,
}

/// The same when it runs.
#[derive(Debug)]
pub struct Inference {
    pub(crate) token: ControlToken,
    /// Requests that each API key may begin in a minute; `None` is no limit.
    pub(crate) requests_per_minute: Option<NonZeroU32>,
}

impl Inference {
    /// Reads the token.
    pub(crate) fn open(config: &InferenceConfig) -> Result<Self, ControlTokenError> {
        let token = ControlToken::read(&config.control_token_file)?;
        Ok(Self { token, requests_per_minute: config.requests_per_minute })
    }
}
