//! The vendor: certifies platforms and says which of their versions are in order.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rcgen::{KeyPair, SerialNumber};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::certificates::{Holder, Role, certify, long_validity, subject};
use crate::files::{read_if_present, read_or_create, write_private};
use crate::keys::{POINT_BYTES, RawSigner};
use crate::platform::{Registration, registered};
use crate::{TeeError, sgx_extension};

/// Identity of a platform (`PPID`).
pub type Ppid = [u8; 16];

/// Kind of platform; no vendor of hardware uses it.
const FMSPC: [u8; 6] = [0xC0, 0xDE, 0, 0, 0, 0];
/// Directory of the platforms' certificates in the vendor's.
const PLATFORMS: &str = "platforms";
/// Most platforms that one node can register: its state was lost that often.
const MAX_PLATFORMS_PER_NODE: usize = 64;

/// From when until when, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub from: Timestamp,
    /// Last second.
    pub until: Timestamp,
}

/// Security versions of a platform: the ones it has, and the ones that the collateral asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityVersions {
    /// SGX components (`CPUSVN`).
    pub cpu: [u8; 16],
    /// Provisioning certification enclave (`PCESVN`).
    pub pce: u16,
    /// TDX components (`TEE_TCB_SVN`); byte 1 is 0: there is no TDX module whose identity could be looked up.
    pub tdx: [u8; 16],
}

impl Default for SecurityVersions {
    fn default() -> Self {
        Self {
            cpu: [4, 4, 2, 2, 4, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0],
            pce: 11,
            tdx: [5, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// What can be chosen about a vendor. The default is what an installation uses.
#[derive(Debug, Clone, Copy)]
pub struct VendorOptions {
    /// Kind of its platforms (`FMSPC`).
    pub fmspc: [u8; 6],
    /// `PCEID`.
    pub pce_id: [u8; 2],
    /// Versions that its platforms are certified with and its collateral asks for.
    pub versions: SecurityVersions,
    /// Of the root, the platform authority and the signer of collateral; `None` for twenty years.
    pub validity: Option<Validity>,
    /// Of platforms' certificates; `None` for twenty years.
    pub platform_validity: Option<Validity>,
}

impl Default for VendorOptions {
    fn default() -> Self {
        Self {
            fmspc: FMSPC,
            pce_id: [0; 2],
            versions: SecurityVersions::default(),
            validity: None,
            platform_validity: None,
        }
    }
}

/// A platform that was certified for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedPlatform {
    /// Name of the node.
    pub node: String,
    /// [`Ppid`] in hex.
    pub ppid: String,
    /// Its key: uncompressed P-256 point, hex.
    pub public_key: String,
    /// PEM: leaf, platform authority, root.
    pub certificate_chain: String,
}

impl IssuedPlatform {
    /// SHA-256 of the PPID, by which the platform is known in public, hex.
    #[must_use]
    pub fn device_id(&self) -> String {
        hex::encode(Sha256::digest(hex::decode(&self.ppid).unwrap_or_default()))
    }
}

/// Why a platform was not certified.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The request cannot be meant.
    #[error("a platform is named by 16 bytes, its key is a point of 65 and its proof 64, all in hex")]
    Malformed,
    /// Whoever asks does not have the key.
    #[error("the request is not signed with the platform's key")]
    Unproven,
    /// The identity belongs to another node, or to another key.
    #[error(
        "this platform belongs to another node or key; remove the node's development platform to get a new one"
    )]
    Taken,
    /// The node registered too many.
    #[error("this node has registered {MAX_PLATFORMS_PER_NODE} platforms, the most that one can have")]
    TooMany,
    /// The vendor failed.
    #[error(transparent)]
    Tee(#[from] TeeError),
}

/// The vendor of development platforms.
pub struct Vendor {
    options: VendorOptions,
    root: Holder,
    platform_ca: Holder,
    tcb_signing: Holder,
    signer: RawSigner,
    /// `None` for a vendor in memory, which keeps no register.
    dir: Option<PathBuf>,
}

impl std::fmt::Debug for Vendor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vendor").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Vendor {
    /// Loads the vendor kept in `dir`, or mints one there at first start, keys readable by their owner
    /// only. Processes that share `dir` and start at the same moment get the same one.
    pub fn load_or_create(dir: &Path, now: Timestamp) -> Result<Self, TeeError> {
        // Each key before its certificate, each issuer before what it issues: whoever finds a part
        // missing makes it for what there is.
        let place =
            |name: &str, issue: &dyn Fn(&KeyPair) -> Result<String, TeeError>| {
                let key_pem = read_or_create(&dir.join(format!("{name}.key")), || {
                    Ok(KeyPair::generate()?.serialize_pem())
                })?;
                let key = KeyPair::from_pem(&key_pem)?;
                let pem = read_or_create(&dir.join(format!("{name}.crt")), || issue(&key))?;
                Holder::new(pem, key_pem)
            };
        Self::assemble(VendorOptions::default(), now, Some(dir.to_owned()), place)
    }

    /// A vendor that exists in memory only.
    pub fn in_memory(options: VendorOptions, now: Timestamp) -> Result<Self, TeeError> {
        Self::assemble(options, now, None, |_, issue| {
            let key = KeyPair::generate()?;
            Holder::new(issue(&key)?, key.serialize_pem())
        })
    }

    fn assemble(
        options: VendorOptions,
        now: Timestamp,
        dir: Option<PathBuf>,
        place: impl Fn(&str, &dyn Fn(&KeyPair) -> Result<String, TeeError>) -> Result<Holder, TeeError>,
    ) -> Result<Self, TeeError> {
        let validity = options.validity.unwrap_or_else(|| long_validity(now));
        let root = place("root", &|key| Ok(Role::Root.params(validity).self_signed(key)?.pem()))?;
        let below_root = |role: Role| {
            let root = &root;
            move |key: &KeyPair| Ok(role.params(validity).signed_by(key, &root.issuer()?)?.pem())
        };
        let platform_ca = place("platform-authority", &below_root(Role::PlatformCa))?;
        let tcb_signing = place("tcb-signing", &below_root(Role::TcbSigning))?;
        let signer = RawSigner::new(&tcb_signing.key()?)?;
        Ok(Self { options, root, platform_ca, tcb_signing, signer, dir })
    }

    /// What was chosen about it.
    #[must_use]
    pub const fn options(&self) -> &VendorOptions {
        &self.options
    }

    /// The root that relying parties configure, DER.
    #[must_use]
    pub fn root_der(&self) -> &[u8] {
        &self.root.der
    }

    /// The same, PEM.
    #[must_use]
    pub fn root_pem(&self) -> &str {
        &self.root.pem
    }

    /// Certifies the key of a platform, an uncompressed P-256 point: leaf, platform authority, root, PEM.
    pub fn issue_platform_certificate(
        &self,
        ppid: &Ppid,
        public_key: &[u8],
        now: Timestamp,
    ) -> Result<String, TeeError> {
        let point: &[u8; POINT_BYTES] = public_key
            .try_into()
            .ok()
            .filter(|point: &&[u8; POINT_BYTES]| point.first() == Some(&4))
            .ok_or(TeeError::Malformed("a platform's key is an uncompressed P-256 point of 65 bytes"))?;
        let validity = self.options.platform_validity.unwrap_or_else(|| long_validity(now));
        let mut params = subject("Cloister development PCK Certificate", validity);
        params.serial_number = Some(serial_number(ppid));
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        params.custom_extensions.push(sgx_extension::extension(
            ppid,
            self.options.fmspc,
            self.options.pce_id,
            &self.options.versions,
        ));
        let leaf = certify(point, &params, &self.platform_ca.issuer()?)?.pem();
        Ok([leaf.as_str(), &self.platform_ca.pem, &self.root.pem].concat())
    }

    /// Certifies the platform of a node that has its key, once: the same request is answered the same
    /// again, and an identity that another node or key has is refused. `node` is the name from a verified
    /// certificate.
    pub fn register_platform(
        &self,
        node: &str,
        request: &Registration,
        now: Timestamp,
    ) -> Result<IssuedPlatform, RegisterError> {
        let malformed = |_| RegisterError::Malformed;
        let mut identity = Ppid::default();
        hex::decode_to_slice(&request.ppid, &mut identity).map_err(malformed)?;
        let mut point = [0; POINT_BYTES];
        hex::decode_to_slice(&request.public_key, &mut point).map_err(malformed)?;
        let mut proof = [0; 64];
        hex::decode_to_slice(&request.proof, &mut proof).map_err(malformed)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(&registered(&identity), &proof)
            .map_err(|_| RegisterError::Unproven)?;
        let dir = self.dir.as_ref().ok_or(TeeError::Malformed("a vendor in memory keeps no register"))?;
        let path = record(dir, &identity);
        if !path.exists() {
            let same_node = self.platforms()?.into_iter().filter(|platform| platform.node == node).count();
            if same_node >= MAX_PLATFORMS_PER_NODE {
                return Err(RegisterError::TooMany);
            }
        }
        let text = read_or_create(&path, || {
            let issued = IssuedPlatform {
                node: node.to_owned(),
                ppid: hex::encode(identity),
                public_key: hex::encode(point),
                certificate_chain: self.issue_platform_certificate(&identity, &point, now)?,
            };
            serde_json::to_string(&issued).map_err(TeeError::Document)
        })?;
        let issued = parse(&text)?;
        if issued.node != node || issued.public_key != hex::encode(point) {
            return Err(RegisterError::Taken);
        }
        Ok(issued)
    }

    /// Name of the node that registered a platform.
    pub fn node_of(&self, ppid: &Ppid) -> Result<Option<String>, TeeError> {
        let Some(dir) = &self.dir else { return Ok(None) };
        let text = read_if_present(&record(dir, ppid))?;
        Ok(text.map(|text| parse(&text)).transpose()?.map(|issued| issued.node))
    }

    /// Every platform that was registered, in the order of their identities.
    pub fn platforms(&self) -> Result<Vec<IssuedPlatform>, TeeError> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        let dir = dir.join(PLATFORMS);
        let failed = |source| TeeError::File { path: dir.clone(), source };
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut platforms = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            // Files that are being written have another ending.
            if path.extension().is_some_and(|extension| extension == "json") {
                let text = std::fs::read_to_string(&path)
                    .map_err(|source| TeeError::File { path: path.clone(), source })?;
                platforms.push(parse(&text)?);
            }
        }
        platforms.sort_by(|a, b| a.ppid.cmp(&b.ppid));
        Ok(platforms)
    }

    /// Writes the root for relying parties, PEM.
    pub fn publish_root(&self, path: &Path) -> Result<(), TeeError> {
        write_private(path, &self.root.pem)
    }

    pub(crate) const fn root(&self) -> &Holder {
        &self.root
    }

    pub(crate) const fn platform_ca(&self) -> &Holder {
        &self.platform_ca
    }

    /// PEM chain of whoever signs TCB information and enclave identities.
    pub(crate) fn tcb_chain(&self) -> String {
        [self.tcb_signing.pem.as_str(), &self.root.pem].concat()
    }

    /// Signs a document of the collateral.
    pub(crate) fn sign(&self, document: &str) -> Result<String, TeeError> {
        Ok(hex::encode(self.signer.sign(document.as_bytes())?))
    }
}

/// Serial number of the certificate of a platform: a platform has one certificate.
pub(crate) fn serial_number(ppid: &Ppid) -> SerialNumber {
    // The leading byte keeps the number positive and of one length.
    SerialNumber::from_slice(&[&[0x01], ppid.as_slice()].concat())
}

/// Where a platform is registered.
fn record(dir: &Path, ppid: &Ppid) -> PathBuf {
    dir.join(PLATFORMS).join(format!("{}.json", hex::encode(ppid)))
}

fn parse(text: &str) -> Result<IssuedPlatform, TeeError> {
    serde_json::from_str(text).map_err(TeeError::Document)
}
