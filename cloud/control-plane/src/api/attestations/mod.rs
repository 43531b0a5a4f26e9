//! Evidence: quotes that anybody may have verified, and what they were verified with.

mod certificates;
pub(crate) mod collateral;
mod guest;
mod intake;
pub(crate) mod platforms;
pub(crate) mod raw;
pub(crate) mod recent;
mod upload;
pub(crate) mod verify;
pub(crate) mod view;
mod wire;

pub(crate) use guest::{MAX_READS, Presented, presented};
pub(crate) use intake::Intake;
pub(crate) use upload::MAX_UPLOAD_BYTES;

use super::Api;
use super::error::{ApiError, ApiResult};
use crate::store::QuoteRow;

/// The stored quote that a path names.
async fn stored(api: &Api, checksum: &str) -> ApiResult<QuoteRow> {
    let is_checksum = checksum.len() == 64 && checksum.bytes().all(|byte| byte.is_ascii_hexdigit());
    let missing = || ApiError::not_found("Quote");
    if !is_checksum {
        return Err(missing());
    }
    api.store.quote(&checksum.to_ascii_lowercase()).await?.ok_or_else(missing)
}
