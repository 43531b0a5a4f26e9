//! The ingress over real sockets, with apps on loopback in place of guests.

mod attestation;
mod elsewhere;
mod http;
mod replicas;
mod rolling;
mod support;
mod tls;
