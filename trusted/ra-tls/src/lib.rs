//! TLS whose certificates carry evidence.
