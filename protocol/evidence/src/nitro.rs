//! Attestation documents of AWS Nitro: `COSE_Sign1` over a CBOR map (platform reference, section 8.3).

use std::collections::BTreeMap;

use ciborium::Value;
use coset::iana::Algorithm;
use coset::{CborSerializable as _, CoseSign1, RegisteredLabelWithPrivate, TaggedCborSerializable as _};
use sha2::{Digest as _, Sha256};

use crate::Measurement;

/// Longest document, in bytes. The device's longest answer has 12 KiB.
pub const MAX_NITRO_DOCUMENT_BYTES: usize = 16 << 10;
/// First index that no register can have.
const MAX_PCRS: u8 = 32;
const MAX_CERTIFICATE_BYTES: usize = 1024;
const MAX_BUNDLE: usize = 8;
const MAX_MODULE_ID_BYTES: usize = 256;
/// First byte of a document with CBOR tag 18, `COSE_Sign1`.
const TAG_18: u8 = 0xd2;

/// Why bytes are not an attestation document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNitroDocument {
    /// More than [`MAX_NITRO_DOCUMENT_BYTES`].
    #[error("the document is longer than {MAX_NITRO_DOCUMENT_BYTES} bytes")]
    TooLong,
    /// Not one `COSE_Sign1` structure and nothing else.
    #[error("the document is not a COSE_Sign1 structure")]
    Cose,
    /// Its headers are not exactly "ES384".
    #[error("the headers of the document are not those of an ES384 signature")]
    Headers,
    /// The signature is not 96 bytes.
    #[error("the signature of the document does not have 96 bytes")]
    Signature,
    /// The payload is not a map with text keys, or one occurs twice.
    #[error("the payload of the document is not a map with distinct names")]
    Payload,
    /// A member is missing or not what it should be.
    #[error("{0} of the document is missing or malformed")]
    Member(&'static str),
}

/// What a document is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NitroKind {
    /// An enclave.
    Enclave,
    /// A virtual machine with a `NitroTPM`.
    NitroTpm,
}

/// A parsed document.
#[derive(Debug, Clone, PartialEq)]
pub struct NitroDocument {
    /// Told by the name of its registers.
    pub kind: NitroKind,
    /// The device: instance id, and for an enclave `-enc` and its number.
    pub module_id: String,
    /// When it was made, in milliseconds since 1970.
    pub timestamp: u64,
    /// Registers by index, 0 to 31.
    pub pcrs: BTreeMap<u8, Measurement>,
    /// Certificate of the signing key, DER.
    pub certificate: Vec<u8>,
    /// Certificates from the root, which is first, to the issuer of `certificate`, DER.
    pub cabundle: Vec<Vec<u8>>,
    /// Public key of the caller, up to 1024 bytes.
    pub public_key: Option<Vec<u8>>,
    /// Data of the caller, up to 512 bytes.
    pub user_data: Option<Vec<u8>>,
    /// Nonce of the caller, up to 512 bytes.
    pub nonce: Option<Vec<u8>>,
    /// ECDSA with P-384 and SHA-384 over [`signed`](Self::signed), r ‖ s.
    pub signature: [u8; 96],
    cose: CoseSign1,
}

impl NitroDocument {
    /// Parses a document, with CBOR tag 18 or without.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidNitroDocument> {
        if bytes.len() > MAX_NITRO_DOCUMENT_BYTES {
            return Err(InvalidNitroDocument::TooLong);
        }
        let cose = if bytes.first() == Some(&TAG_18) {
            CoseSign1::from_tagged_slice(bytes)
        } else {
            CoseSign1::from_slice(bytes)
        }
        .map_err(|_| InvalidNitroDocument::Cose)?;
        let es384 = coset::HeaderBuilder::new().algorithm(Algorithm::ES384).build();
        let is_es384 =
            cose.protected.header.alg == Some(RegisteredLabelWithPrivate::Assigned(Algorithm::ES384));
        if !is_es384 || cose.protected.header != es384 || !cose.unprotected.is_empty() {
            return Err(InvalidNitroDocument::Headers);
        }
        let signature = cose.signature.as_slice().try_into().map_err(|_| InvalidNitroDocument::Signature)?;
        let payload = cose.payload.as_deref().ok_or(InvalidNitroDocument::Cose)?;
        let mut members = Members::parse(payload)?;
        if members.text("digest")? != "SHA384" {
            return Err(InvalidNitroDocument::Member("digest"));
        }
        let (kind, pcrs) = members.pcrs()?;
        Ok(Self {
            kind,
            module_id: members.text("module_id")?,
            timestamp: members.timestamp()?,
            pcrs,
            certificate: members.certificate()?,
            cabundle: members.cabundle()?,
            public_key: members.optional_bytes("public_key", 1024)?,
            user_data: members.optional_bytes("user_data", 512)?,
            nonce: members.optional_bytes("nonce", 512)?,
            signature,
            cose,
        })
    }

    /// The bytes that the signature covers.
    #[must_use]
    pub fn signed(&self) -> Vec<u8> {
        self.cose.tbs_data(&[])
    }

    /// Whether the enclave could be debugged: its image was not measured.
    #[must_use]
    pub fn is_debug(&self) -> bool {
        [0, 1, 2].iter().all(|index| self.pcrs.get(index).is_none_or(|pcr| *pcr == Measurement::ZERO))
    }

    /// Identity of an enclave's image, SHA-256 over registers 0, 1 and 2; `None` unless all three are there,
    /// and for a machine with a TPM, whose registers of these numbers are those of its firmware.
    #[must_use]
    pub fn image_hash(&self) -> Option<[u8; 32]> {
        if self.kind != NitroKind::Enclave {
            return None;
        }
        let mut hasher = Sha256::new();
        for index in [0, 1, 2] {
            hasher.update(self.pcrs.get(&index)?.as_bytes());
        }
        Some(hasher.finalize().into())
    }

    /// Identity of the machine, SHA-256 over the id of the instance that runs the enclave.
    #[must_use]
    pub fn device_id(&self) -> [u8; 32] {
        let instance = self.module_id.split_once("-enc").map_or(self.module_id.as_str(), |(id, _)| id);
        Sha256::digest(instance).into()
    }
}

/// The payload's members that were not taken yet.
struct Members(BTreeMap<String, Value>);

impl Members {
    fn parse(mut payload: &[u8]) -> Result<Self, InvalidNitroDocument> {
        let value: Value = ciborium::from_reader(&mut payload).map_err(|_| InvalidNitroDocument::Payload)?;
        let Value::Map(pairs) = value else { return Err(InvalidNitroDocument::Payload) };
        if !payload.is_empty() {
            return Err(InvalidNitroDocument::Payload);
        }
        let mut members = BTreeMap::new();
        for (name, value) in pairs {
            let Value::Text(name) = name else { return Err(InvalidNitroDocument::Payload) };
            if members.insert(name, value).is_some() {
                return Err(InvalidNitroDocument::Payload);
            }
        }
        Ok(Self(members))
    }

    fn text(&mut self, name: &'static str) -> Result<String, InvalidNitroDocument> {
        match self.0.remove(name) {
            Some(Value::Text(text)) if !text.is_empty() && text.len() <= MAX_MODULE_ID_BYTES => Ok(text),
            _ => Err(InvalidNitroDocument::Member(name)),
        }
    }

    fn timestamp(&mut self) -> Result<u64, InvalidNitroDocument> {
        let value = self.0.remove("timestamp").and_then(|value| value.into_integer().ok());
        let timestamp = value.and_then(|value| u64::try_from(value).ok());
        timestamp.filter(|timestamp| *timestamp > 0).ok_or(InvalidNitroDocument::Member("timestamp"))
    }

    fn pcrs(&mut self) -> Result<(NitroKind, BTreeMap<u8, Measurement>), InvalidNitroDocument> {
        let malformed = InvalidNitroDocument::Member("pcrs");
        let (kind, value) = match (self.0.remove("pcrs"), self.0.remove("nitrotpm_pcrs")) {
            (Some(value), None) => (NitroKind::Enclave, value),
            (None, Some(value)) => (NitroKind::NitroTpm, value),
            _ => return Err(malformed),
        };
        let Value::Map(pairs) = value else { return Err(malformed) };
        let mut pcrs = BTreeMap::new();
        for (index, value) in pairs {
            let index = index.into_integer().ok().and_then(|index| u8::try_from(index).ok());
            let value = value.into_bytes().ok().and_then(|bytes| bytes.try_into().ok());
            let (Some(index), Some(value)) = (index.filter(|index| *index < MAX_PCRS), value) else {
                return Err(malformed);
            };
            if pcrs.insert(index, Measurement::from_bytes(value)).is_some() {
                return Err(malformed);
            }
        }
        if pcrs.is_empty() { Err(malformed) } else { Ok((kind, pcrs)) }
    }

    fn certificate(&mut self) -> Result<Vec<u8>, InvalidNitroDocument> {
        self.0.remove("certificate").and_then(certificate).ok_or(InvalidNitroDocument::Member("certificate"))
    }

    fn cabundle(&mut self) -> Result<Vec<Vec<u8>>, InvalidNitroDocument> {
        let malformed = InvalidNitroDocument::Member("cabundle");
        let Some(Value::Array(bundle)) = self.0.remove("cabundle") else { return Err(malformed) };
        if bundle.is_empty() || bundle.len() > MAX_BUNDLE {
            return Err(malformed);
        }
        bundle.into_iter().map(|value| certificate(value).ok_or(malformed)).collect()
    }

    fn optional_bytes(
        &mut self,
        name: &'static str,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, InvalidNitroDocument> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bytes(bytes)) if bytes.len() <= limit => Ok(Some(bytes)),
            Some(_) => Err(InvalidNitroDocument::Member(name)),
        }
    }
}

fn certificate(value: Value) -> Option<Vec<u8>> {
    let bytes = value.into_bytes().ok()?;
    (1..=MAX_CERTIFICATE_BYTES).contains(&bytes.len()).then_some(bytes)
}
