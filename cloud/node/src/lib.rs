//! Runs CVMs on one host and routes traffic to them.
