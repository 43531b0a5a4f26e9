//! What clients may call: one table of the surfaces that answer with a model's words.

/// A surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Surface {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/embeddings`.
    Embeddings,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
}

impl Surface {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Chat, Self::Completions, Self::Embeddings, Self::Responses, Self::Messages];

    /// Where it answers; what receipts and figures call it.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// The surface at a path.
    #[must_use]
    pub fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|surface| surface.path() == path)
    }

    /// Whether `stream: true` is heard; where it is not, it is ignored.
    #[must_use]
    pub const fn streams(self) -> bool {
        !matches!(self, Self::Embeddings)
    }

    /// Whether fields may be encrypted end to end.
    #[must_use]
    pub const fn encrypts(self) -> bool {
        matches!(self, Self::Chat | Self::Completions | Self::Embeddings)
    }
}
