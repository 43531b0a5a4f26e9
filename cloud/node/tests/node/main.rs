//! The node through its two public faces: calls of a control plane over mutual TLS, and its reports.
#![cfg(test)]

mod adoption;
mod evidence;
mod full_disk;
mod images;
mod lifecycle;
mod real;
mod refusals;
mod support;
