//! The node through its two public faces: calls of a control plane over mutual TLS, and its reports.

mod adoption;
mod lifecycle;
mod real;
mod refusals;
mod support;
