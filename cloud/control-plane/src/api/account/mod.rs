//! The account behind a credential.

pub(crate) mod devices;
pub(crate) mod me;
pub(crate) mod quotas;
pub(crate) mod ssh_keys;
pub(crate) mod token_refresh;
pub(crate) mod tokens;
pub(crate) mod workspaces;
