use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zeroize::Zeroizing;

/// Bytes, lower-case hex on the wire; a leading `0x` is understood.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Hex(pub Vec<u8>);

impl<T: Into<Vec<u8>>> From<T> for Hex {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl AsRef<[u8]> for Hex {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        decode(deserializer).map(Self)
    }
}

/// Secret bytes, lower-case hex on the wire. They are wiped when dropped and have no readable form.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretHex(pub Zeroizing<Vec<u8>>);

impl<T: Into<Vec<u8>>> From<T> for SecretHex {
    fn from(bytes: T) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }
}

impl AsRef<[u8]> for SecretHex {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} secret bytes]", self.0.len())
    }
}

impl Serialize for SecretHex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(hex::encode(self.0.as_slice())))
    }
}

impl<'de> Deserialize<'de> for SecretHex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        decode(deserializer).map(|bytes| Self(Zeroizing::new(bytes)))
    }
}

fn decode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Zeroizing::new(String::deserialize(deserializer)?);
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    // The text may be a secret: it is not repeated.
    hex::decode(digits).map_err(|_| de::Error::custom("expected bytes in hex"))
}
