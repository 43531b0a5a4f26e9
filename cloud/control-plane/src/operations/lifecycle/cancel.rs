//! Ending operations before their time.

use uuid::Uuid;

use super::{Lifecycle, OperationKind, running_operation};
use crate::store::{CancelRequest, StoreError};

/// Outcome of a cancel call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancellation {
    /// The operation that is being cancelled; `None` when the CVM was idle.
    pub correlation_id: Option<Uuid>,
}

/// Why an operation was not cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    /// The CVM is gone.
    #[error("the CVM does not exist any more")]
    NotFound,
    /// Operations of this kind run to their end.
    #[error("a running {0} cannot be cancelled")]
    NotCancellable(OperationKind),
    /// It did what it was asked for and only tidies up.
    #[error("{0} is done but for tidying up; it is too late to cancel it")]
    TooLate(OperationKind),
    /// It failed by itself, and what it did is being undone.
    #[error("{0} failed and is being undone already; wait for it to end")]
    RollingBack(OperationKind),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Lifecycle {
    /// Asks the running operation of a CVM to end. Repeating the call changes nothing.
    pub async fn cancel(&self, cvm_id: i64) -> Result<Cancellation, CancelError> {
        let mut change = self.store.change().await?;
        let cvm = change.lock_living_cvm(cvm_id).await?.ok_or(CancelError::NotFound)?;
        let Some(operation) = running_operation(&mut change, &cvm).await? else {
            return Ok(Cancellation { correlation_id: None });
        };
        let rules = operation.rules();
        let was_told = CancelRequest::from_column(operation.cancel_requested) != CancelRequest::No;
        match operation.failure {
            _ if !rules.cancellable => return Err(CancelError::NotCancellable(operation.kind)),
            Some(_) if !was_told => return Err(CancelError::RollingBack(operation.kind)),
            None if rules.is_decided(operation.step) => return Err(CancelError::TooLate(operation.kind)),
            _ => {}
        }
        change.request_cancel(operation.correlation_id, CancelRequest::Cancel).await?;
        change.commit().await?;
        self.wake_workers.notify_one();
        Ok(Cancellation { correlation_id: Some(operation.correlation_id) })
    }
}
