//! The node through its two public faces: calls of a control plane over mutual TLS, and its reports.
#![cfg(test)]

mod adoption;
mod control_plane;
mod evidence;
mod full_disk;
mod gpus;
mod images;
mod ingress;
mod lifecycle;
mod os_images;
mod ports;
mod real;
mod refusals;
mod service;
mod support;
