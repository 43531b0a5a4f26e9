//! How many spans a collector took, and how many were lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// Spans since the start.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    ended: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
}

impl Spans {
    pub(super) fn note_end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// That were to be told.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// That a collector took.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// That it did not take, however often it was tried.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// An exporter whose spans are counted.
#[derive(Debug)]
pub(super) struct Counted<E> {
    exporter: E,
    spans: Arc<Spans>,
}

impl<E> Counted<E> {
    pub(super) const fn new(exporter: E, spans: Arc<Spans>) -> Self {
        Self { exporter, spans }
    }
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len() as u64;
        let taken = self.exporter.export(batch).await;
        let spans = if taken.is_ok() { &self.spans.taken } else { &self.spans.refused };
        spans.fetch_add(count, Ordering::Relaxed);
        taken
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
