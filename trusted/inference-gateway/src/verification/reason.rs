//! Why something is not verified, in words that can stand in a receipt.

/// Longest reason, in characters.
const MAX: usize = 300;

/// Why something is not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason(String);

impl Reason {
    /// A sentence of our own, which may quote a little of what others said: shortened, without control characters.
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        let printable = text.as_ref().chars().filter(|character| !character.is_control());
        Self(printable.take(MAX).collect())
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}
