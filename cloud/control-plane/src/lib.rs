//! Management API, operations and their store.
