//! An append-only Merkle log with signed checkpoints, on disk, and its verification.
