//! Evidence as the management API shows it: quotes, their verification, and what CVMs and apps present.

mod guests;
mod quotes;

pub use guests::{
    AppAttestations, AppCertificate, AppKmsInfo, AppTcbEvaluation, AttestedEvent, CertificateIssuer,
    CertificateSubject, CvmAttestation, EvidenceVerdict, GuestAgentInfo, InstanceAttestation,
    InstanceTcbEvaluation, TcbInfo, TcbUpdate,
};
pub use quotes::{
    NodeProvider, ParsedQuote, PlatformListState, QuoteBody, QuoteCollateral, QuoteHeader, QuoteVerification,
    RecentQuote, StoredQuote, VerifyQuoteForm, VerifyQuoteRequest,
};
