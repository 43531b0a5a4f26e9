//! Quotes of Intel SGX and TDX: versions 3, 4 and 5 (platform reference, section 5.1).
//!
//! Parsing says what a quote claims; only a verified quote proves it.

mod body;
mod certification;
mod pck;

pub use body::{EnclaveReport, QuoteBody, ServiceTd, TdReport, TdReport15, TdReport15Ex};
pub use certification::{CertificationData, InvalidCertification, PCK_CERTIFICATE_CHAIN};
pub use pck::{InvalidPckCertificate, PckCa, PckCertificate};

use crate::reader::{Reader, Truncated};

/// Longest quote, in bytes. Real ones have about 5 KiB.
pub const MAX_QUOTE_BYTES: usize = 64 << 10;
/// `tee_type` of SGX.
pub const TEE_TYPE_SGX: u32 = 0;
/// `tee_type` of TDX.
pub const TEE_TYPE_TDX: u32 = 0x81;
/// `ak_type` of ECDSA with P-256, the only one in use.
pub const ATTESTATION_KEY_ECDSA_P256: u16 = 2;
/// `qe_vendor` of Intel.
pub const INTEL_QE_VENDOR: [u8; 16] =
    [0x93, 0x9a, 0x72, 0x33, 0xf7, 0x9c, 0x4c, 0xa9, 0x94, 0x0a, 0x0d, 0xb3, 0x95, 0x7f, 0x06, 0x07];

/// Certification data that holds the QE's report and the PCK chain; versions 4 and 5 wrap them so.
const QE_REPORT_CERTIFICATION: u16 = 6;

/// Why bytes are not a quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuote {
    /// More than [`MAX_QUOTE_BYTES`].
    #[error("the quote is longer than {MAX_QUOTE_BYTES} bytes")]
    TooLong,
    /// It ends in the middle, or a length in it points beyond its end.
    #[error("the quote is cut off, or a length in it points beyond its end")]
    Truncated,
    /// Neither 3, 4 nor 5.
    #[error("quotes of version {0} are unknown")]
    Version(u16),
    /// Neither SGX nor TDX, or not what this version or body is for.
    #[error("TEE type {0:#x} does not fit the version and body of the quote")]
    TeeType(u32),
    /// Not [`ATTESTATION_KEY_ECDSA_P256`].
    #[error("attestation keys of type {0} are unknown")]
    KeyType(u16),
    /// Not 1 to 4.
    #[error("bodies of type {0} are unknown")]
    BodyType(u16),
    /// Not the size of a body of this type.
    #[error("a body of type {kind} does not have {size} bytes")]
    BodySize {
        /// The body's type.
        kind: u16,
        /// The size that the quote gives, in bytes.
        size: u32,
    },
    /// Versions 4 and 5 must wrap the QE's report in certification data of type 6.
    #[error("certification data of type {0} stands where the QE's report should")]
    Certification(u16),
    /// Bytes that belong to nothing.
    #[error("the quote has bytes that belong to nothing, {0}")]
    Leftover(&'static str),
}

impl From<Truncated> for InvalidQuote {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

/// The first 48 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuoteHeader<'a> {
    /// 3, 4 or 5.
    pub version: u16,
    /// Type of the attestation key: 2, ECDSA with P-256.
    pub ak_type: u16,
    /// [`TEE_TYPE_SGX`] or [`TEE_TYPE_TDX`].
    pub tee_type: u32,
    /// Security version of the quoting enclave.
    pub qe_svn: u16,
    /// Security version of the provisioning certification enclave.
    pub pce_svn: u16,
    /// Vendor of the quoting enclave; [`INTEL_QE_VENDOR`] in any quote that can verify.
    pub qe_vendor: &'a [u8; 16],
    /// Data of the quoting enclave.
    pub user_data: &'a [u8; 20],
}

/// A parsed quote, which borrows from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote<'a> {
    /// The first 48 bytes.
    pub header: QuoteHeader<'a>,
    /// The type of the body, which version 5 alone names.
    pub body_type: Option<u16>,
    /// What the hardware reported.
    pub body: QuoteBody<'a>,
    /// ECDSA signature of the attestation key over [`signed`](Self::signed), r ‖ s.
    pub signature: &'a [u8; 64],
    /// The attestation key, x ‖ y.
    pub attestation_key: &'a [u8; 64],
    /// What the hardware reported about the quoting enclave.
    pub qe_report: EnclaveReport<'a>,
    /// ECDSA signature of the platform's key (PCK) over the QE's report, r ‖ s.
    pub qe_report_signature: &'a [u8; 64],
    /// Data that the QE's report covers together with the attestation key.
    pub qe_auth_data: &'a [u8],
    /// What leads to the platform's key.
    pub certification: CertificationData<'a>,
    signed: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Quote<'a> {
    /// Parses a quote. Every byte must belong to something, but for zeros at the end: the interfaces that
    /// hand out quotes pad them to a fixed size, real ones with 70 of them. Anything else behind the end
    /// is refused, because no signature covers it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, InvalidQuote> {
        if bytes.len() > MAX_QUOTE_BYTES {
            return Err(InvalidQuote::TooLong);
        }
        let mut reader = Reader::new(bytes);
        let header = QuoteHeader {
            version: reader.u16()?,
            ak_type: reader.u16()?,
            tee_type: reader.u32()?,
            qe_svn: reader.u16()?,
            pce_svn: reader.u16()?,
            qe_vendor: reader.array()?,
            user_data: reader.array()?,
        };
        let (body_type, body) = read_body(&header, &mut reader)?;
        let unsigned = reader.rest().len();
        let auth_data_length = reader.u32()?;
        let mut auth_data = Reader::new(reader.bytes_u32(auth_data_length)?);
        if reader.rest().iter().any(|byte| *byte != 0) {
            return Err(InvalidQuote::Leftover("behind its end"));
        }
        let signature = auth_data.array()?;
        let attestation_key = auth_data.array()?;
        if header.version > 3 {
            let kind = auth_data.u16()?;
            if kind != QE_REPORT_CERTIFICATION {
                return Err(InvalidQuote::Certification(kind));
            }
            let length = auth_data.u32()?;
            let wrapped = auth_data.bytes_u32(length)?;
            nothing_left(auth_data, "behind the QE's certification")?;
            auth_data = Reader::new(wrapped);
        }
        let qe_report = EnclaveReport::read(&mut auth_data)?;
        let qe_report_signature = auth_data.array()?;
        let length = auth_data.u16()?;
        let qe_auth_data = auth_data.bytes(length.into())?;
        let kind = auth_data.u16()?;
        let length = auth_data.u32()?;
        let certification = CertificationData { kind, data: auth_data.bytes_u32(length)? };
        nothing_left(auth_data, "behind its certification data")?;
        Ok(Self {
            header,
            body_type,
            body,
            signature,
            attestation_key,
            qe_report,
            qe_report_signature,
            qe_auth_data,
            certification,
            signed: leading(bytes, unsigned),
            bytes: leading(bytes, reader.rest().len()),
        })
    }

    /// The bytes that the attestation key signed: header and body.
    #[must_use]
    pub const fn signed(&self) -> &'a [u8] {
        self.signed
    }

    /// The quote without the zeros that may follow it.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The report on a trust domain, unless this is about an SGX enclave.
    #[must_use]
    pub const fn td_report(&self) -> Option<&TdReport<'a>> {
        match &self.body {
            QuoteBody::Td(report) => Some(report),
            QuoteBody::Enclave(_) => None,
        }
    }

    /// The report on an SGX enclave, unless this is about a trust domain.
    #[must_use]
    pub const fn enclave_report(&self) -> Option<&EnclaveReport<'a>> {
        match &self.body {
            QuoteBody::Enclave(report) => Some(report),
            QuoteBody::Td(_) => None,
        }
    }

    /// The 64 bytes that the quote was made over.
    #[must_use]
    pub const fn report_data(&self) -> &'a [u8; 64] {
        match &self.body {
            QuoteBody::Enclave(report) => report.report_data,
            QuoteBody::Td(report) => report.reportdata,
        }
    }
}

fn read_body<'a>(
    header: &QuoteHeader<'_>,
    reader: &mut Reader<'a>,
) -> Result<(Option<u16>, QuoteBody<'a>), InvalidQuote> {
    let body_type = match header.version {
        3 | 4 => None,
        5 => Some((reader.u16()?, reader.u32()?)),
        version => return Err(InvalidQuote::Version(version)),
    };
    if header.ak_type != ATTESTATION_KEY_ECDSA_P256 {
        return Err(InvalidQuote::KeyType(header.ak_type));
    }
    let kind = match (header.version, header.tee_type, body_type) {
        (3 | 4, TEE_TYPE_SGX, _) => body::ENCLAVE,
        (4, TEE_TYPE_TDX, _) => body::TD_10,
        (5, TEE_TYPE_SGX, Some((kind @ body::ENCLAVE, _)))
        | (5, TEE_TYPE_TDX, Some((kind @ (body::TD_10 | body::TD_15 | body::TD_15_EX), _))) => kind,
        (5, TEE_TYPE_SGX | TEE_TYPE_TDX, Some((kind, _)))
            if !(body::ENCLAVE..=body::TD_15_EX).contains(&kind) =>
        {
            return Err(InvalidQuote::BodyType(kind));
        }
        (_, tee_type, _) => return Err(InvalidQuote::TeeType(tee_type)),
    };
    if let Some((kind, size)) = body_type
        && size != body::size(kind)
    {
        return Err(InvalidQuote::BodySize { kind, size });
    }
    Ok((body_type.map(|(kind, _)| kind), QuoteBody::read(kind, reader)?))
}

/// All but the last `rest` bytes.
fn leading(bytes: &[u8], rest: usize) -> &[u8] {
    bytes.len().checked_sub(rest).and_then(|length| bytes.get(..length)).unwrap_or_default()
}

fn nothing_left(reader: Reader<'_>, place: &'static str) -> Result<(), InvalidQuote> {
    if reader.rest().is_empty() { Ok(()) } else { Err(InvalidQuote::Leftover(place)) }
}
