//! The management API.

use std::sync::Arc;

use axum::Router;
use tokio_util::sync::CancellationToken;

use crate::App;

/// The whole HTTP surface; streams end when `stop` is cancelled.
pub fn router(app: Arc<App>, stop: CancellationToken) -> Router {
    let _ = (app, stop);
    Router::new()
}
