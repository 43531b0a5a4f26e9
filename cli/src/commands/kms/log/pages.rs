//! Records in order, fetched page by page.

use cloister_kms_api::log::{MAX_RECORDS, Records};

use crate::commands::kms::connection::Directory;
use crate::failure::{Exit, Failure};

/// Reads records from a place on.
#[derive(Debug)]
pub(super) struct Pages<'a> {
    directory: &'a Directory,
    next: u64,
}

impl<'a> Pages<'a> {
    pub(super) const fn from(directory: &'a Directory, start: u64) -> Self {
        Self { directory, next: start }
    }

    /// Index of the next record.
    pub(super) const fn next_index(&self) -> u64 {
        self.next
    }

    /// The next records, at most up to `end`; there must be at least one before it.
    pub(super) async fn page(&mut self, end: u64) -> Result<Vec<String>, Failure> {
        let limit = end.saturating_sub(self.next).min(MAX_RECORDS as u64);
        let page: Records =
            self.directory.get("/log/records", &[("start", self.next), ("limit", limit)]).await?;
        let count = page.records.len() as u64;
        if page.start != self.next || count == 0 || count > limit {
            let message = format!(
                "the KMS answered {count} records from {}, not up to {limit} from {}",
                page.start, self.next
            );
            return Err(Failure::new(Exit::Unverified, message)
                .hint("records that a checkpoint counts are kept back or lost"));
        }
        self.next += count;
        Ok(page.records)
    }
}
