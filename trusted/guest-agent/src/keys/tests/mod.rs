//! Against a KMS over real TLS, with evidence of a development platform.

mod calls;
mod environments;
mod kms;
