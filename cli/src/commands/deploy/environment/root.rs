//! Which KMS is trusted: the one whose root was named or published by its contract, else the one that was met first.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use cloister_app_compose::AppId;
use cloister_kms_api::statements::{K256Public, current_root};
use cloister_kms_api::{Hex, RootInfo};
use cloister_management_api::KmsInspection;
use serde::{Deserialize, Serialize};

use crate::api::{BaseUrl, Client, read};
use crate::credentials::{Credentials, FILE_NAME};
use crate::failure::{Exit, Failure};
use crate::places;
use crate::session::Session;

/// secp256k1 key of a KMS's root, compressed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RootKey(K256Public);

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a root's key has 66 hex digits and begins with 02 or 03")]
pub(crate) struct InvalidRootKey;

impl FromStr for RootKey {
    type Err = InvalidRootKey;

    fn from_str(text: &str) -> Result<Self, InvalidRootKey> {
        let bytes = hex::decode(text.strip_prefix("0x").unwrap_or(text)).map_err(|_| InvalidRootKey)?;
        let key: K256Public = bytes.try_into().map_err(|_| InvalidRootKey)?;
        if matches!(key.first(), Some(2 | 3)) { Ok(Self(key)) } else { Err(InvalidRootKey) }
    }
}

impl TryFrom<String> for RootKey {
    type Error = InvalidRootKey;

    fn try_from(text: String) -> Result<Self, InvalidRootKey> {
        text.parse()
    }
}

impl From<RootKey> for String {
    fn from(key: RootKey) -> Self {
        key.to_string()
    }
}

impl From<K256Public> for RootKey {
    fn from(key: K256Public) -> Self {
        Self(key)
    }
}

impl fmt::Display for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RootKey({self})")
    }
}

/// Lets `met`, the root that signed for an application, count only if it is the trusted one or follows it: the named
/// one, else the one that is remembered of the application, else one that is remembered of the server. The first root
/// that is met at a server is trusted, and said to be. What was trusted last is remembered.
///
/// For an application that `is_pinned` to a KMS by its document, the named root alone counts: one that is remembered may have
/// been taken at its word.
pub(crate) async fn check(
    met: RootKey,
    app_id: AppId,
    named: Option<RootKey>,
    is_pinned: bool,
    kms: &str,
    client: &Client,
    session: &Session,
) -> Result<(), Failure> {
    let path = place(session, client.server())?;
    let mut credentials = Credentials::load(&path)?;
    let (remembered, output) = (credentials.kms_roots(client.server()), &session.output);
    if named.is_none() && is_pinned {
        return Err(unnamed());
    }
    let trusted = named.map_or_else(|| remembered.of(app_id), |root| vec![root]);
    let mut roots = remembered.clone();
    if trusted.is_empty() {
        output.say(&format!(
            "First environment for {}: its KMS is taken at its word, and its root {met} is remembered in {}. \
             Compare it with what the operator publishes, or name the right one with --kms-root.",
            client.server().origin(),
            path.display()
        ));
    } else if !trusted.contains(&met) {
        let former = follows(met, app_id, &trusted, kms, client).await?;
        output.say(&format!("The root of the KMS has a successor, {met}, which is remembered now."));
        roots.succeed(former, met);
    }
    roots.trust(app_id, met);
    if roots == remembered {
        return Ok(());
    }
    credentials.remember_kms_roots(client.server().clone(), roots);
    credentials.store(&path)
}

/// Nobody but the server says what root it is, and the document is meant to keep others away.
pub(crate) fn unnamed() -> Failure {
    let text = "the document names the KMS that the guest takes keys of, and what is sealed goes by another key of it, which was \
                not named";
    Failure::new(Exit::Unverified, text)
        .hint("nothing was sealed and nothing was sent")
        .hint("name it: --kms-root, \"Root key (secp256k1)\" of `cloister kms status`")
}

/// The file that holds what is known of a server: that of the cloud on this machine, or that of logins.
fn place(session: &Session, server: &BaseUrl) -> Result<PathBuf, Failure> {
    let local = session.data_dir()?.join(FILE_NAME);
    if Credentials::load(&local)?.key(server).is_some() { Ok(local) } else { places::login_credentials() }
}

/// The trusted root from which on each root signed the next, up to the one that was met.
async fn follows(
    met: RootKey,
    app_id: AppId,
    trusted: &[RootKey],
    kms: &str,
    client: &Client,
) -> Result<RootKey, Failure> {
    let refusal = |failure: Failure| {
        failure
            .hint("nothing was sealed and nothing was sent")
            .hint(format!("if the operator confirms the new root, name it once: --kms-root {met}"))
    };
    let other = || {
        let known: Vec<String> = trusted.iter().map(RootKey::to_string).collect();
        let text = format!(
            "the KMS's key is signed by the root {met}, and the trusted root is {}",
            known.join(" or ")
        );
        Failure::new(Exit::Unverified, text)
    };
    // A kind of KMS stands for that of the application, as where its key was asked for.
    let query = [("app_id", app_id.to_string())];
    let query = query.each_ref().map(|(name, value)| (*name, value.as_str()));
    let inspection: KmsInspection = read(&client.get(&["kms", kms, "info"], &query).await?)?;
    let roots = inspection.rpc.map(|rpc| rpc.roots).unwrap_or_default();
    let bytes = |text: &str| hex::decode(text).map(Hex);
    let roots = roots.into_iter().map(|root| {
        Ok(RootInfo {
            version: root.version,
            ca_pubkey: bytes(&root.ca_pubkey)?,
            k256_pubkey: bytes(&root.k256_pubkey)?,
            created_at: root.created_at,
            predecessor_signature: root.predecessor_signature.as_deref().map(bytes).transpose()?,
            retired_at: None,
        })
    });
    let roots: Result<Vec<RootInfo>, hex::FromHexError> = roots.collect();
    let roots = roots.map_err(|error| refusal(other().caused_by(error)))?;
    let mut failure = other();
    for root in trusted {
        match current_root(&roots, &root.0) {
            Ok(current) if current.k256_pubkey.0 == met.0 => return Ok(*root),
            Ok(_) => {}
            Err(error) => failure = other().caused_by(error),
        }
    }
    Err(refusal(failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compressed_keys_are_keys() {
        let text = format!("02{}", "ab".repeat(32));
        assert_eq!(text.parse::<RootKey>().unwrap().to_string(), text);
        assert!(format!("0x{text}").parse::<RootKey>().is_ok());
        for text in [String::new(), "02".into(), format!("04{}", "ab".repeat(32)), format!("{text}00")] {
            assert!(text.parse::<RootKey>().is_err(), "{text}");
        }
    }
}
