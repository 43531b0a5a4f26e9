//! Logins by a provider that is told what to do.

mod logins;
pub(crate) mod provider;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{OpenidConfig, UnknownPeople};

/// Some of it has another form in a form.
pub(crate) const SECRET: &str = "s3cret+with&signs=%";
pub(crate) const CLIENT: &str = "cloister:test";

/// A provider, with the secret in a file.
pub(crate) fn described(issuer: &str, secret: &Path) -> OpenidConfig {
    OpenidConfig {
        issuer: issuer.into(),
        client_id: CLIENT.into(),
        client_secret_file: secret.to_owned(),
        name: "Example <ID>".into(),
        scopes: vec!["profile".into(), "openid".into(), "email".into()],
        username_claim: "preferred_username".into(),
        allowed_email_domains: vec![],
        required_claims: vec![],
        unknown_people: UnknownPeople::Refuse,
        password_login: true,
        trusted_amr: vec![],
        trusted_acr: vec![],
    }
}

/// The same, with the secret in a file of a directory.
pub(crate) fn config(issuer: &str, dir: &Path) -> OpenidConfig {
    let path = dir.join("client-secret");
    fs::write(&path, format!("{SECRET}\r\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    described(issuer, &path)
}
