//! Where the keys of an application come from: its own document says so, to the guest and to whoever deploys
//! it in the same way.

use serde_json::Value;

use crate::AppCompose;

/// Longest identity of a key provider that a document pins, in hex digits.
const MAX_ID_DIGITS: usize = 1024;

/// What gives an application its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyProvider {
    /// Nothing: it has none.
    None,
    /// A KMS.
    Kms {
        /// `SubjectPublicKeyInfo` (DER) of a root that the KMS must have, if the document demands one.
        pinned_root: Option<Vec<u8>>,
    },
}

/// Why a document's key provider cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedProvider {
    /// One that needs hardware or a host that is not here.
    #[error("the document asks for the key provider {0}, which there is not in this cloud; use kms or none")]
    Unsupported(&'static str),
    /// Not a name of a key provider.
    #[error("key_provider of the document must be none, kms, local or tpm")]
    Unknown,
    /// Not hex, or too long.
    #[error("key_provider_id of the document must be at most {MAX_ID_DIGITS} hex digits")]
    Id,
    /// An identity of nobody.
    #[error("the document has a key_provider_id, but no key provider that it could be of")]
    IdOfNone,
}

impl KeyProvider {
    /// By `key_provider`, or in its absence by the older members (platform reference, section 1).
    pub fn of(app: &AppCompose) -> Result<Self, UnsupportedProvider> {
        let document = app.document();
        let members = app.members();
        let name = match document.get("key_provider") {
            Some(Value::String(name)) => name.as_str(),
            Some(Value::Null) | None if members.kms_enabled => "kms",
            Some(Value::Null) | None if members.local_key_provider_enabled => "local",
            Some(Value::Null) | None => "none",
            Some(_) => return Err(UnsupportedProvider::Unknown),
        };
        let id = pinned(document.get("key_provider_id"))?;
        match (name, id) {
            ("kms", pinned_root) => Ok(Self::Kms { pinned_root }),
            ("none", None) => Ok(Self::None),
            ("none", Some(_)) => Err(UnsupportedProvider::IdOfNone),
            ("local", _) => Err(UnsupportedProvider::Unsupported("local")),
            ("tpm", _) => Err(UnsupportedProvider::Unsupported("tpm")),
            _ => Err(UnsupportedProvider::Unknown),
        }
    }
}

fn pinned(member: Option<&Value>) -> Result<Option<Vec<u8>>, UnsupportedProvider> {
    let digits = match member {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.strip_prefix("0x").unwrap_or(text),
        Some(_) => return Err(UnsupportedProvider::Id),
    };
    if digits.is_empty() {
        return Ok(None);
    }
    let id = (digits.len() <= MAX_ID_DIGITS).then(|| hex::decode(digits).ok()).flatten();
    id.map(Some).ok_or(UnsupportedProvider::Id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(members: &str) -> Result<KeyProvider, UnsupportedProvider> {
        let document =
            format!(r#"{{"manifest_version":2,"name":"a","runner":"bash","bash_script":"true"{members}}}"#);
        KeyProvider::of(&AppCompose::parse(document.as_bytes()).unwrap())
    }

    #[test]
    fn the_document_decides() {
        let kms = |pinned: Option<&[u8]>| Ok(KeyProvider::Kms { pinned_root: pinned.map(<[u8]>::to_vec) });
        let cases = [
            ("", Ok(KeyProvider::None)),
            (r#","kms_enabled":true"#, kms(None)),
            (r#","kms_enabled":1"#, kms(None)),
            (r#","kms_enabled":0"#, Ok(KeyProvider::None)),
            (r#","kms_enabled":null"#, Ok(KeyProvider::None)),
            (r#","kms_enabled":true,"local_key_provider_enabled":true"#, kms(None)),
            (r#","kms_enabled":true,"key_provider":"none""#, Ok(KeyProvider::None)),
            (r#","kms_enabled":true,"key_provider":null,"key_provider_id":"""#, kms(None)),
            (r#","key_provider":"kms","key_provider_id":"0xAb01""#, kms(Some(&[0xAB, 1]))),
            (r#","local_key_provider_enabled":true"#, Err(UnsupportedProvider::Unsupported("local"))),
            (r#","kms_enabled":true,"key_provider":"tpm""#, Err(UnsupportedProvider::Unsupported("tpm"))),
            (r#","key_provider":"vault""#, Err(UnsupportedProvider::Unknown)),
            (r#","key_provider":7"#, Err(UnsupportedProvider::Unknown)),
            (r#","key_provider_id":"ab""#, Err(UnsupportedProvider::IdOfNone)),
            (r#","kms_enabled":true,"key_provider_id":"abc""#, Err(UnsupportedProvider::Id)),
            (r#","kms_enabled":true,"key_provider_id":5"#, Err(UnsupportedProvider::Id)),
            // What it once meant is said by other members today.
            (r#","features":["kms"]"#, Ok(KeyProvider::None)),
        ];
        for (members, expected) in cases {
            assert_eq!(provider(members), expected, "{members}");
        }
        let long = format!(r#","kms_enabled":true,"key_provider_id":"{}""#, "ab".repeat(MAX_ID_DIGITS));
        assert_eq!(provider(&long), Err(UnsupportedProvider::Id));
    }
}
