//! Identifiers of our own records. Inside they are integers; on the wire most of them are short texts
//! with a prefix that says what they name.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sqids::Sqids;

/// A text that is not an identifier of the expected kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an identifier of the form {prefix}…")]
pub struct InvalidId {
    prefix: &'static str,
}

static SQIDS: LazyLock<Sqids> = LazyLock::new(Sqids::default);

/// The tag makes the same number of two kinds give different texts.
fn encode(prefix: &str, tag: u64, id: i64) -> String {
    let text = u64::try_from(id).ok().and_then(|id| SQIDS.encode(&[id, tag]).ok());
    format!("{prefix}{}", text.unwrap_or_default())
}

/// Several texts decode to the same number; only the one that we print counts.
fn decode(prefix: &'static str, tag: u64, text: &str) -> Result<i64, InvalidId> {
    let invalid = InvalidId { prefix };
    let hash = text.strip_prefix(prefix).filter(|hash| hash.len() <= 32).ok_or(invalid)?;
    let id = match *SQIDS.decode(hash).as_slice() {
        [id, found] if found == tag => i64::try_from(id).map_err(|_| invalid)?,
        _ => return Err(invalid),
    };
    if encode(prefix, tag, id) == text { Ok(id) } else { Err(invalid) }
}

macro_rules! hashed_id {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal, $tag:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&encode($prefix, $tag, self.0))
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                decode($prefix, $tag, text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some(concat!("^", $prefix, ".+")))
                    .examples([Self(7).to_string()])
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    )+};
}

hashed_id! {
    /// A CVM.
    CvmId, "cvm_", 1;
    /// A user.
    UserId, "usr_", 2;
    /// A workspace.
    WorkspaceId, "wks_", 3;
    /// An API key.
    TokenId, "tok_", 4;
    /// A node of a key management service.
    KmsId, "kms_", 5;
    /// What decides for a key management service.
    KmsContractId, "kc_", 6;
    /// A configuration that a CVM has or had.
    RevisionId, "rev_", 20;
    /// A change that goes over several CVMs.
    RolloutId, "rol_", 21;
    /// A key that logs in to CVMs.
    SshKeyId, "sshkey_", 7;
    /// A port of a node that leads to a CVM.
    PortMappingId, "pm_", 8;
    /// An application as a record.
    ProjectId, "prj_", 9;
    /// Where events of a workspace are told to.
    WebhookId, "wh_", 30;
    /// A place among the events of a workspace.
    WebhookCursor, "whc_", 31;
    /// An entry of a workspace's ledger.
    CreditId, "crd_", 40;
}

/// `id` of a CVM in the `VM` record: an integer, or the hashed text in versions that want it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum VmId {
    /// Up to version 2026-01-21.
    Integer(i64),
    /// From version 2026-05-22 on.
    Hashed(CvmId),
}

/// The same for another kind of id, in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum VersionedId<T> {
    /// Up to version 2026-01-21.
    Integer(i64),
    /// From version 2026-05-22 on.
    Hashed(T),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_stable() {
        let texts =
            [CvmId(1).to_string(), CvmId(100_000).to_string(), UserId(1).to_string(), KmsId(1).to_string()];
        insta::assert_snapshot!(texts.join(" "));
    }

    #[test]
    fn other_kinds_and_other_spellings_are_refused() {
        let user = UserId(3).to_string();
        assert!(user.replace("usr_", "cvm_").parse::<CvmId>().is_err());
        for text in ["", "cvm_", "cvm_1", "3", "cvm_ä", &"cvm_a".repeat(100)] {
            assert!(text.parse::<CvmId>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_id_reads_back(id in 0..i64::MAX) {
            prop_assert_eq!(CvmId(id).to_string().parse(), Ok(CvmId(id)));
        }

        #[test]
        fn what_reads_prints_the_same(text in "cvm_[a-zA-Z0-9]{1,12}") {
            if let Ok(id) = text.parse::<CvmId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
