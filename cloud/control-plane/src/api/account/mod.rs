//! The account behind a credential.

pub(crate) mod me;
pub(crate) mod tokens;
pub(crate) mod workspaces;
