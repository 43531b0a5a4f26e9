//! Environment variables sealed to an application's key.
