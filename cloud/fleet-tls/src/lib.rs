//! The installation's certificate authority and the mutual TLS between control plane and nodes.
