//! What a person is told when a request is not made, or fails. No text names an address: what a name leads to inside
//! of the operator's network is nobody else's business.

use thiserror::Error;

use crate::resolve::LookupError;

/// Why no request is made to a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Refused {
    /// It cannot be read as a URL, or only with guesses.
    #[error(
        "this is not a URL; write it as https://example.com/path, without spaces, backslashes or control characters"
    )]
    Unreadable,
    /// It is longer than 2,048 bytes.
    #[error("the URL is too long; at most 2048 bytes are taken")]
    TooLong,
    /// Its scheme is not https, nor http to where the operator allows it.
    #[error("the URL must begin with https://")]
    Scheme,
    /// It holds a user name or a password.
    #[error("the URL must not contain a user name or a password")]
    Credentials,
    /// It holds a fragment, which no server would ever see.
    #[error("the URL must not contain a fragment (#)")]
    Fragment,
    /// Its port is that of another kind of service.
    #[error(
        "the URL's port is not allowed; use 443, or a port from 1024 on that no other protocol is known for"
    )]
    Port,
    /// Its host is no complete public name.
    #[error(
        "the URL's host must be a complete public name; localhost, names of one label and names of local zones are not"
    )]
    Host,
    /// Its host is, or leads to, an address that is not public.
    #[error(
        "the URL's host must lead to public addresses only; private, local and reserved ones are not allowed"
    )]
    Address,
    /// Its host has no address.
    #[error("the URL's host has no address; check the name and what is published about it")]
    Unknown,
    /// Name servers did not say which addresses its host has.
    #[error(
        "the URL's host could not be looked up; check that the domain's name servers are up, and try again"
    )]
    NoAnswer,
}

impl Refused {
    /// Whether the same URL may be taken later without any change of it: a name server may answer by then, a name may
    /// exist or lead elsewhere.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::Address | Self::Unknown | Self::NoAnswer)
    }
}

impl From<LookupError> for Refused {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::Unknown => Self::Unknown,
            LookupError::NoAnswer => Self::NoAnswer,
        }
    }
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum SendError {
    /// It was not made.
    #[error("not sent: {0}")]
    Refused(#[from] Refused),
    /// Nothing listens at the port.
    #[error("the connection was refused: nothing listens at this port")]
    ConnectionRefused,
    /// There is no way to the host.
    #[error("the host cannot be reached")]
    Unreachable,
    /// TLS was not established.
    #[error("TLS failed: {0}")]
    Tls(#[from] TlsError),
    /// Time was up.
    #[error("timed out: {0}")]
    Timeout(Stage),
    /// The connection ended before the answer was complete.
    #[error("the connection ended before there was an answer")]
    Disconnected,
    /// What came is not HTTP/1.1.
    #[error("the answer is not valid HTTP")]
    Malformed,
    /// The head of the answer is larger than anybody needs.
    #[error("the head of the answer is too large")]
    TooLarge,
    /// The request itself cannot be sent.
    #[error("the request has a header that cannot be sent")]
    Request,
}

impl SendError {
    /// A short word for counting, and for machines that read a record.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Refused(Refused::Unknown | Refused::NoAnswer) => "dns",
            Self::Refused(_) => "refused",
            Self::ConnectionRefused | Self::Unreachable => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout(_) => "timeout",
            Self::Disconnected => "disconnected",
            Self::Malformed | Self::TooLarge => "answer",
            Self::Request => "request",
        }
    }
}

/// What time was spent on when it was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Stage {
    /// Looking the host up.
    #[error("no name server answered in time")]
    Lookup,
    /// Connecting.
    #[error("the host did not take the connection in time")]
    Connecting,
    /// The TLS handshake.
    #[error("the TLS handshake did not end in time")]
    Handshake,
    /// Sending, and waiting for the head of the answer.
    #[error("there was no answer in time")]
    Answering,
}

/// Why TLS was not established.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum TlsError {
    /// The certificate's time is over.
    #[error("the server's certificate has expired")]
    Expired,
    /// The certificate's time has not come.
    #[error("the server's certificate is not valid yet")]
    NotYetValid,
    /// The certificate is for other names.
    #[error("the server's certificate is not for this host name")]
    WrongName,
    /// Nobody who is trusted signed the certificate.
    #[error(
        "the server's certificate is not signed by a known authority; send the whole chain, self-signed ones are not taken"
    )]
    UnknownIssuer,
    /// The certificate was taken back.
    #[error("the server's certificate was revoked")]
    Revoked,
    /// The certificate is invalid in another way.
    #[error("the server's certificate is invalid")]
    BadCertificate,
    /// The server speaks no version or cipher that is acceptable.
    #[error("the server offers neither TLS 1.2 nor 1.3 with an acceptable cipher")]
    Incompatible,
    /// The server ended the handshake.
    #[error("the server broke the handshake off")]
    Alert,
    /// What came is not TLS.
    #[error("the server does not speak TLS at this port")]
    NotTls,
    /// The operator's machine trusts no authority.
    #[error("this installation has no list of certificate authorities; its operator has to install one")]
    NoRoots,
}
