//! The platform: signs quotes with its own keys.

use std::path::Path;

use rcgen::KeyPair;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::TeeError;
use crate::files::read_or_create;
use crate::keys::{POINT_BYTES, RawSigner};
use crate::report::TdReport;
use crate::vendor::{Ppid, SecurityVersions};

/// `939A7233-F79C-4CA9-940A-0DB3957F0607`: Intel's quoting enclave. Verifiers demand it.
const QE_VENDOR: [u8; 16] =
    [0x93, 0x9A, 0x72, 0x33, 0xF7, 0x9C, 0x4C, 0xA9, 0x94, 0x0A, 0x0D, 0xB3, 0x95, 0x7F, 0x06, 0x07];
const VERSION: u16 = 4;
const ECDSA_P256: u16 = 2;
const TDX: u32 = 0x81;
/// Certification data: a certified report of the quoting enclave.
const QE_REPORT_DATA: u16 = 6;
/// Certification data: a PEM chain.
const PEM_CHAIN: u16 = 5;
/// Data that the quoting enclave adds to its key's binding; 32 bytes, as every verifier takes them.
const QE_AUTH_DATA: [u8; 32] = *b"Cloister development quoting----";
const KEY_FILE: &str = "platform.json";
/// Begins what a platform signs for its vendor; nothing else that its keys sign begins so.
const REGISTRATION: &[u8] = b"cloister development platform registration\0";

/// The identity of the enclave that signs quotes; there is none, so it is a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotingEnclave {
    /// `MISCSELECT`.
    pub misc_select: [u8; 4],
    /// `ATTRIBUTES`; bit 1 of the first byte is debug.
    pub attributes: [u8; 16],
    /// `MRSIGNER`.
    pub mr_signer: [u8; 32],
    /// `ISVPRODID`.
    pub product_id: u16,
    /// `ISVSVN`.
    pub security_version: u16,
}

impl Default for QuotingEnclave {
    fn default() -> Self {
        let mut attributes = [0; 16];
        // Initialised, and may use the provisioning key.
        if let Some(flags) = attributes.first_mut() {
            *flags = 0x11;
        }
        Self {
            misc_select: [0; 4],
            attributes,
            mr_signer: Sha256::digest("Cloister development quoting enclave").into(),
            product_id: 2,
            security_version: 4,
        }
    }
}

impl QuotingEnclave {
    /// Its report (an SGX report body) over `report_data`.
    fn report(&self, versions: &SecurityVersions, report_data: &[u8; 32]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(384);
        bytes.extend(versions.cpu);
        bytes.extend(self.misc_select);
        bytes.extend([0; 28]);
        bytes.extend(self.attributes);
        bytes.extend([0; 64]); // MRENCLAVE, which no identity names, and a reserved part
        bytes.extend(self.mr_signer);
        bytes.extend([0; 96]);
        bytes.extend(self.product_id.to_le_bytes());
        bytes.extend(self.security_version.to_le_bytes());
        bytes.extend([0; 60]);
        bytes.extend(report_data);
        bytes.extend([0; 32]);
        bytes
    }
}

/// The keys of a platform and its identity. Has no readable form.
pub struct PlatformKey {
    ppid: Ppid,
    certified: RawSigner,
    attestation: RawSigner,
}

impl std::fmt::Debug for PlatformKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlatformKey").field("ppid", &hex::encode(self.ppid)).finish_non_exhaustive()
    }
}

/// How keys are kept.
#[derive(Serialize, Deserialize)]
struct KeptKey {
    ppid: String,
    certified: String,
    attestation: String,
}

impl KeptKey {
    fn generate() -> Result<Self, TeeError> {
        let mut ppid = Ppid::default();
        SystemRandom::new().fill(&mut ppid)?;
        Ok(Self {
            ppid: hex::encode(ppid),
            certified: KeyPair::generate()?.serialize_pem(),
            attestation: KeyPair::generate()?.serialize_pem(),
        })
    }
}

impl TryFrom<KeptKey> for PlatformKey {
    type Error = TeeError;

    fn try_from(kept: KeptKey) -> Result<Self, TeeError> {
        let mut ppid = Ppid::default();
        hex::decode_to_slice(&kept.ppid, &mut ppid)
            .map_err(|_| TeeError::Malformed("the platform's identity is not 16 bytes in hex"))?;
        Ok(Self {
            ppid,
            certified: RawSigner::new(&KeyPair::from_pem(&kept.certified)?)?,
            attestation: RawSigner::new(&KeyPair::from_pem(&kept.attestation)?)?,
        })
    }
}

impl PlatformKey {
    /// Loads the platform kept in `dir`, or makes one there, readable by its owner only.
    pub fn load_or_create(dir: &Path) -> Result<Self, TeeError> {
        let path = dir.join(KEY_FILE);
        let text = read_or_create(&path, || {
            serde_json::to_string(&KeptKey::generate()?).map_err(TeeError::Document)
        })?;
        let kept: KeptKey = serde_json::from_str(&text)
            .map_err(|_| TeeError::Malformed("the file with the platform's keys is damaged"))?;
        kept.try_into()
    }

    /// A platform that exists in memory only.
    pub fn generate() -> Result<Self, TeeError> {
        KeptKey::generate()?.try_into()
    }

    /// Identity of the platform.
    #[must_use]
    pub const fn ppid(&self) -> &Ppid {
        &self.ppid
    }

    /// The key that the vendor certifies: an uncompressed P-256 point.
    #[must_use]
    pub const fn public_key(&self) -> &[u8; POINT_BYTES] {
        self.certified.point()
    }

    /// Asks the vendor for a certificate, and proves that the key is here.
    pub fn registration(&self) -> Result<Registration, TeeError> {
        let proof = self.certified.sign(&registered(&self.ppid))?;
        Ok(Registration {
            ppid: hex::encode(self.ppid),
            public_key: hex::encode(self.public_key()),
            proof: hex::encode(proof),
        })
    }
}

/// A platform's request for a certificate; not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// [`Ppid`], hex.
    pub ppid: String,
    /// The key to be certified: uncompressed P-256 point, hex.
    pub public_key: String,
    /// Signature of that key over the identity, r ‖ s, hex. Without it a node could have the key of another
    /// node's platform certified, or one that it computed from a signature of that platform, and pass
    /// quotes of that platform off as made on its own.
    pub proof: String,
}

/// What the proof of a registration signs.
pub(crate) fn registered(ppid: &Ppid) -> Vec<u8> {
    [REGISTRATION, ppid.as_slice()].concat()
}

/// A platform with its certificate: signs quotes.
#[derive(Debug)]
pub struct Platform {
    key: PlatformKey,
    /// Everything of a quote after the signature of its body.
    certification: Vec<u8>,
    ppid: Ppid,
}

impl Platform {
    /// A platform certified by `certificate_chain` (PEM: leaf, authority, root).
    pub fn new(key: PlatformKey, certificate_chain: &str) -> Result<Self, TeeError> {
        Self::with_enclave(key, certificate_chain, &QuotingEnclave::default())
    }

    /// The same with another quoting enclave, for whoever tests a verifier.
    pub fn with_enclave(
        key: PlatformKey,
        certificate_chain: &str,
        enclave: &QuotingEnclave,
    ) -> Result<Self, TeeError> {
        let leaf = CertificateDer::from_pem_slice(certificate_chain.as_bytes())
            .map_err(|_| TeeError::Malformed("the platform's certificate is not PEM"))?;
        if !leaf.windows(POINT_BYTES).any(|window| window == key.public_key()) {
            return Err(TeeError::Malformed("the platform's certificate is for another key"));
        }
        let certification = certification(&key, certificate_chain, enclave)?;
        Ok(Self { ppid: key.ppid, key, certification })
    }

    /// Identity of the platform.
    #[must_use]
    pub const fn ppid(&self) -> &Ppid {
        &self.ppid
    }

    /// A TDX quote, version 4, over a report.
    pub fn quote(&self, report: &TdReport) -> Result<Vec<u8>, TeeError> {
        let mut quote = Vec::with_capacity(1024 + self.certification.len());
        quote.extend(VERSION.to_le_bytes());
        quote.extend(ECDSA_P256.to_le_bytes());
        quote.extend(TDX.to_le_bytes());
        quote.extend([0; 4]);
        quote.extend(QE_VENDOR);
        quote.extend([0; 20]);
        quote.extend(report.bytes());
        let signature = self.key.attestation.sign(&quote)?;
        quote.extend(length(signature.len() + self.certification.len())?);
        quote.extend(signature);
        quote.extend(&self.certification);
        Ok(quote)
    }
}

/// Attestation key, the quoting enclave's report over it signed by the certified key, and the chain.
fn certification(key: &PlatformKey, chain: &str, enclave: &QuotingEnclave) -> Result<Vec<u8>, TeeError> {
    let attestation_key = key.attestation.coordinates();
    let binding = Sha256::new().chain_update(attestation_key).chain_update(QE_AUTH_DATA).finalize();
    let report = enclave.report(&SecurityVersions::default(), &binding.into());
    let mut certified = Vec::new();
    certified.extend(&report);
    certified.extend(key.certified.sign(&report)?);
    certified.extend(u16::try_from(QE_AUTH_DATA.len()).unwrap_or_default().to_le_bytes());
    certified.extend(QE_AUTH_DATA);
    certified.extend(PEM_CHAIN.to_le_bytes());
    certified.extend(length(chain.len())?);
    certified.extend(chain.as_bytes());

    let mut bytes = Vec::new();
    bytes.extend(attestation_key);
    bytes.extend(QE_REPORT_DATA.to_le_bytes());
    bytes.extend(length(certified.len())?);
    bytes.extend(certified);
    Ok(bytes)
}

fn length(bytes: usize) -> Result<[u8; 4], TeeError> {
    u32::try_from(bytes).map(u32::to_le_bytes).map_err(|_| TeeError::Malformed("a quote below 4 GiB"))
}
