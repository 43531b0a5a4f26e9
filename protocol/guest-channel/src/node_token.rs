//! The secret by which the guest agent knows its node.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// HTTP header in which the node presents its token to the guest agent's listener.
pub const NODE_TOKEN_HEADER: &str = "x-cloister-node";

/// 32 random bytes that a node makes for each VM; hex on every wire, hidden in debug output.
#[derive(Clone)]
pub struct NodeToken([u8; 32]);

/// A text that is not the hex form of a token; it is not repeated, since it may be nearly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a node token must be 64 hex digits")]
pub struct InvalidNodeToken;

impl NodeToken {
    /// Wraps random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The text for [`NODE_TOKEN_HEADER`].
    #[must_use]
    pub fn header_value(&self) -> String {
        hex::encode(self.0)
    }
}

impl PartialEq for NodeToken {
    /// Takes the same time wherever the tokens differ, so that a caller cannot guess digit by digit.
    fn eq(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl Eq for NodeToken {}

impl FromStr for NodeToken {
    type Err = InvalidNodeToken;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| InvalidNodeToken)?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for NodeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeToken(…)")
    }
}

impl Serialize for NodeToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.header_value())
    }
}

impl<'de> Deserialize<'de> for NodeToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_only_itself_and_hides_in_debug_output() {
        let token = NodeToken::from_bytes([7; 32]);
        assert_eq!(token.header_value().parse(), Ok(token.clone()));
        assert_ne!(token, NodeToken::from_bytes([8; 32]));
        assert_eq!(format!("{token:?}"), "NodeToken(…)");
        assert_eq!("07".repeat(31).parse::<NodeToken>(), Err(InvalidNodeToken));
    }
}
