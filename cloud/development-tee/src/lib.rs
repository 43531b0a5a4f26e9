//! Plays TEE hardware and its vendor where there is none, for development.
