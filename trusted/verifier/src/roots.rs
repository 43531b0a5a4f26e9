//! Trust roots by name, and which of them a verifier accepts.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Intel SGX Root CA, from <https://certificates.trustedservices.intel.com/Intel_SGX_Provisioning_Certification_RootCA.cer>.
const INTEL_SGX_ROOT_CA: &[u8] = include_bytes!("roots/intel_sgx_root_ca.der");
/// AWS Nitro Enclaves root G1, from <https://aws-nitro-enclaves.amazonaws.com/AWS_NitroEnclaves_Root-G1.zip>.
const AWS_NITRO_ENCLAVES_ROOT_G1: &[u8] = include_bytes!("roots/aws_nitro_enclaves_root_g1.der");
/// AMD's root keys, from `https://kdsintf.amd.com/vcek/v1/{family}/cert_chain`.
const AMD_ARK_MILAN: &[u8] = include_bytes!("roots/amd_ark_milan.der");
const AMD_ARK_GENOA: &[u8] = include_bytes!("roots/amd_ark_genoa.der");
const AMD_ARK_TURIN: &[u8] = include_bytes!("roots/amd_ark_turin.der");
/// Longest certificate that is taken for a root, in bytes.
const MAX_ROOT_BYTES: usize = 8 << 10;

/// Who vouches for evidence in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustRoot {
    /// Intel, for SGX and TDX.
    IntelSgxRootCa,
    /// AWS, for Nitro Enclaves.
    AwsNitroEnclavesRootG1,
    /// AMD, for SEV-SNP on processors of the Milan family.
    AmdArkMilan,
    /// AMD, for the Genoa family.
    AmdArkGenoa,
    /// AMD, for the Turin family.
    AmdArkTurin,
    /// An installation's own development root: no hardware protects what it vouches for.
    Development,
}

impl TrustRoot {
    /// Whether evidence under this root comes from hardware that protects a machine's memory.
    #[must_use]
    pub const fn is_hardware(self) -> bool {
        !matches!(self, Self::Development)
    }
}

impl fmt::Display for TrustRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IntelSgxRootCa => "Intel SGX Root CA",
            Self::AwsNitroEnclavesRootG1 => "AWS Nitro Enclaves Root G1",
            Self::AmdArkMilan => "AMD Root Key (Milan)",
            Self::AmdArkGenoa => "AMD Root Key (Genoa)",
            Self::AmdArkTurin => "AMD Root Key (Turin)",
            Self::Development => "development root (no hardware protection)",
        })
    }
}

/// Why a set of roots cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RootsError {
    /// Production and the development root exclude each other.
    #[error("the development root is never accepted in production: configure one or the other")]
    DevelopmentInProduction,
    /// A second development root.
    #[error("there is a development root already")]
    Twice,
    /// Not a certificate of a certification authority.
    #[error("the development root is not a certificate that can vouch for others")]
    NotARoot,
}

/// The roots that a verifier accepts.
#[derive(Clone, PartialEq, Eq)]
pub struct TrustRoots {
    development: Option<Vec<u8>>,
    production: bool,
}

impl TrustRoots {
    /// The pinned roots of the hardware vendors.
    #[must_use]
    pub const fn vendors() -> Self {
        Self { development: None, production: false }
    }

    /// Also accepts the development root with this certificate (DER).
    pub fn with_development_root(self, der: impl Into<Vec<u8>>) -> Result<Self, RootsError> {
        let der = der.into();
        if self.production {
            return Err(RootsError::DevelopmentInProduction);
        }
        if self.development.is_some() {
            return Err(RootsError::Twice);
        }
        let is_authority = der.len() <= MAX_ROOT_BYTES
            && x509_parser::parse_x509_certificate(&der)
                .is_ok_and(|(rest, certificate)| rest.is_empty() && certificate.is_ca());
        let vendors =
            [INTEL_SGX_ROOT_CA, AWS_NITRO_ENCLAVES_ROOT_G1, AMD_ARK_MILAN, AMD_ARK_GENOA, AMD_ARK_TURIN];
        if !is_authority || vendors.contains(&der.as_slice()) {
            return Err(RootsError::NotARoot);
        }
        Ok(Self { development: Some(der), ..self })
    }

    /// Promises that no development root is or will be accepted.
    pub fn in_production(self) -> Result<Self, RootsError> {
        if self.development.is_some() {
            return Err(RootsError::DevelopmentInProduction);
        }
        Ok(Self { production: true, ..self })
    }

    /// Whether [`TrustRoots::in_production`] was promised.
    #[must_use]
    pub const fn is_production(&self) -> bool {
        self.production
    }

    /// The certificate (DER) of a root; `None` for a development root that is not configured.
    #[must_use]
    pub fn certificate(&self, root: TrustRoot) -> Option<&[u8]> {
        match root {
            TrustRoot::IntelSgxRootCa => Some(INTEL_SGX_ROOT_CA),
            TrustRoot::AwsNitroEnclavesRootG1 => Some(AWS_NITRO_ENCLAVES_ROOT_G1),
            TrustRoot::Development => self.development.as_deref(),
            TrustRoot::AmdArkMilan => Some(AMD_ARK_MILAN),
            TrustRoot::AmdArkGenoa => Some(AMD_ARK_GENOA),
            TrustRoot::AmdArkTurin => Some(AMD_ARK_TURIN),
        }
    }

    /// The accepted root of SGX and TDX quotes with exactly this certificate.
    #[must_use]
    pub fn named(&self, der: &[u8]) -> Option<TrustRoot> {
        [TrustRoot::IntelSgxRootCa, TrustRoot::Development]
            .into_iter()
            .find(|root| self.certificate(*root) == Some(der))
    }
}

impl fmt::Debug for TrustRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustRoots")
            .field("development", &self.development.is_some())
            .field("production", &self.production)
            .finish()
    }
}
