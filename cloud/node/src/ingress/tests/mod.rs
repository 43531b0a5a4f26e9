//! The ingress over real sockets, with apps on loopback in place of guests.

mod attestation;
mod http;
mod support;
mod tls;
