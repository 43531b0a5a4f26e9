//! Collateral is fetched once for all who wait, refreshed before it expires, and never used after.

mod cache;
mod service;
