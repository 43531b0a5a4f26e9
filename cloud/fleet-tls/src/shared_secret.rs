use std::path::Path;

use crate::FleetTlsError;
use crate::files::{create_private, read_if_present};

/// The secret that a directory keeps under `name`, as 64 hex digits. `fresh` becomes it when there is
/// none; processes that share the directory share the secret.
pub fn shared_secret(dir: &Path, name: &str, fresh: [u8; 32]) -> Result<[u8; 32], FleetTlsError> {
    let path = dir.join(name);
    let text = match read_if_present(&path)? {
        Some(text) => text,
        None => create_private(&path, &hex::encode(fresh))?,
    };
    let mut secret = [0; 32];
    hex::decode_to_slice(text.trim(), &mut secret).map_err(|_| FleetTlsError::Secret { path })?;
    Ok(secret)
}
