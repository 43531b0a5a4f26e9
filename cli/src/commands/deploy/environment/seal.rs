//! Sealing an environment to the key of an application, after the key was shown to be the KMS's.

use cloister_app_compose::AppId;
use cloister_kms_api::statements::{env_key_digest, recover};
use cloister_management_api::KmsPubkey;
use cloister_sealed_env::{Environment, SealError};

use super::root::{self, RootKey};
use crate::api::{Client, read};
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Asks for the application's key, verifies who signed it, and seals: hex of what only the
/// guest can open. `kms` is an id or slug, or the kind `phala` for that of the application's CVM; `is_pinned`, whether the
/// application's document names it.
pub(crate) async fn seal(
    environment: &Environment,
    app_id: AppId,
    kms: &str,
    named_root: Option<RootKey>,
    is_pinned: bool,
    client: &Client,
    session: &Session,
) -> Result<String, Failure> {
    let key = SignedKey::get(app_id, kms, client).await?;
    root::check(key.signer, app_id, named_root, is_pinned, kms, client, session).await?;
    key.seal(environment)
}

/// The key to seal an application's environment to, and the root that signed it.
struct SignedKey {
    recipient: [u8; 32],
    signer: RootKey,
}

impl SignedKey {
    async fn get(app_id: AppId, kms: &str, client: &Client) -> Result<Self, Failure> {
        let key: KmsPubkey = read(&client.get(&["kms", kms, "pubkey", &app_id.to_string()], &[]).await?)?;
        let bytes = |text: &str| hex::decode(text).map_err(|_| unusable());
        let recipient: [u8; 32] = bytes(&key.public_key)?.try_into().map_err(|_| unusable())?;
        let digest = env_key_digest(&app_id, &recipient);
        let signer =
            recover(&digest, &bytes(&key.signature)?).map_err(|error| unusable().caused_by(error))?;
        Ok(Self { recipient, signer: RootKey::from(signer) })
    }

    fn seal(&self, environment: &Environment) -> Result<String, Failure> {
        let sealed =
            cloister_sealed_env::seal(&self.recipient, environment, &mut |bytes| getrandom::fill(bytes));
        sealed.map(hex::encode).map_err(|error: SealError<getrandom::Error>| match error {
            SealError::TooLong(_) => Failure::usage("the environment cannot be sealed").caused_by(error),
            SealError::WeakKey => unusable().caused_by(error),
            other => Failure::local("the environment cannot be sealed", other),
        })
    }
}

fn unusable() -> Failure {
    Failure::new(Exit::Unverified, "the KMS's answer is no signed key of the application")
}
