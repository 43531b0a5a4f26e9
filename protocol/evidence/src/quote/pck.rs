//! What a platform's certificate (PCK) says about it: Intel's extension 1.2.840.113741.1.13.1.

use x509_parser::der_parser::ber::{BerObject, BerObjectContent};
use x509_parser::der_parser::der::parse_der;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Longest certificate that is looked at, in bytes.
const MAX_CERTIFICATE_BYTES: usize = 8 << 10;

const SGX_EXTENSION: [u64; 7] = [1, 2, 840, 113_741, 1, 13, 1];
const PPID: u64 = 1;
const TCB: u64 = 2;
const PCE_ID: u64 = 3;
const FMSPC: u64 = 4;
const SGX_TYPE: u64 = 5;
const PLATFORM_INSTANCE_ID: u64 = 6;
const PCE_SVN: u64 = 17;
const CPU_SVN: u64 = 18;

/// Why bytes are not the certificate of a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPckCertificate {
    /// Not one DER certificate of a bearable size.
    #[error("it is not one X.509 certificate in DER")]
    Certificate,
    /// It says nothing about a platform.
    #[error("it has no SGX extension, or several")]
    NoExtension,
    /// What it says cannot be read; names the member.
    #[error("{0} of its SGX extension is missing, repeated or malformed")]
    Extension(&'static str),
}

/// Which of Intel's authorities issued a platform's certificate: decides which list revokes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PckCa {
    /// Of single-socket platforms.
    Processor,
    /// Of platforms that are registered as a whole.
    Platform,
}

impl PckCa {
    /// As a PCCS names it: `processor` or `platform`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processor => "processor",
            Self::Platform => "platform",
        }
    }
}

/// What a platform's certificate says; nothing here checks who signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PckCertificate {
    /// The issuer, told by its common name; `None` when that names neither.
    pub ca: Option<PckCa>,
    /// The platform's identity.
    pub ppid: [u8; 16],
    /// Security versions of the CPU, component by component.
    pub tcb_components: [u8; 16],
    /// Security version of the provisioning certification enclave.
    pub pce_svn: u16,
    /// Security versions of the CPU, as the CPU packs them.
    pub cpu_svn: [u8; 16],
    /// The provisioning certification enclave.
    pub pce_id: [u8; 2],
    /// Family, model, stepping, type, SKU: names the collateral to verify with.
    pub fmspc: [u8; 6],
    /// 0 standard, 1 scalable, 2 scalable with integrity.
    pub sgx_type: u8,
    /// The platform's registration; not in certificates of the processor authority.
    pub platform_instance_id: Option<[u8; 16]>,
}

impl PckCertificate {
    /// Parses one DER certificate.
    pub fn parse(der: &[u8]) -> Result<Self, InvalidPckCertificate> {
        if der.len() > MAX_CERTIFICATE_BYTES {
            return Err(InvalidPckCertificate::Certificate);
        }
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|_| InvalidPckCertificate::Certificate)?;
        if !rest.is_empty() {
            return Err(InvalidPckCertificate::Certificate);
        }
        let mut extensions = certificate
            .extensions()
            .iter()
            .filter(|extension| extension.oid.iter().is_some_and(|arcs| arcs.eq(SGX_EXTENSION)));
        let (Some(extension), None) = (extensions.next(), extensions.next()) else {
            return Err(InvalidPckCertificate::NoExtension);
        };
        let members = Members::parse(extension.value, &SGX_EXTENSION, "the whole")?;
        let issuer = certificate.issuer().iter_common_name().next().and_then(|name| name.as_str().ok());
        let tcb_arc: Vec<u64> = SGX_EXTENSION.into_iter().chain([TCB]).collect();
        let tcb = Members::of(members.get(TCB, "tcb")?, &tcb_arc, "tcb")?;
        let mut tcb_components = [0; 16];
        for (number, component) in (1..).zip(&mut tcb_components) {
            *component = tcb.number(number, "tcb component")?;
        }
        Ok(Self {
            ca: issuer.and_then(|name| match name {
                "Intel SGX PCK Processor CA" => Some(PckCa::Processor),
                "Intel SGX PCK Platform CA" => Some(PckCa::Platform),
                _ => None,
            }),
            ppid: members.octets(PPID, "ppid")?,
            tcb_components,
            pce_svn: tcb.number(PCE_SVN, "pcesvn")?,
            cpu_svn: tcb.octets(CPU_SVN, "cpusvn")?,
            pce_id: members.octets(PCE_ID, "pceid")?,
            fmspc: members.octets(FMSPC, "fmspc")?,
            sgx_type: match members.get(SGX_TYPE, "sgx type")?.content {
                BerObjectContent::Enum(value) => u8::try_from(value).ok(),
                _ => None,
            }
            .ok_or(InvalidPckCertificate::Extension("sgx type"))?,
            platform_instance_id: if members.has(PLATFORM_INSTANCE_ID) {
                Some(members.octets(PLATFORM_INSTANCE_ID, "platform instance id")?)
            } else {
                None
            },
        })
    }
}

/// A sequence of pairs: object identifier under one arc, value.
struct Members<'a>(Vec<(u64, BerObject<'a>)>);

impl<'a> Members<'a> {
    fn parse(der: &'a [u8], arc: &[u64], name: &'static str) -> Result<Self, InvalidPckCertificate> {
        match parse_der(der) {
            Ok(([], sequence)) => Self::of(&sequence, arc, name),
            _ => Err(InvalidPckCertificate::Extension(name)),
        }
    }

    fn of(sequence: &BerObject<'a>, arc: &[u64], name: &'static str) -> Result<Self, InvalidPckCertificate> {
        let malformed = || InvalidPckCertificate::Extension(name);
        let mut members: Vec<(u64, BerObject<'a>)> = Vec::new();
        for pair in sequence.as_sequence().map_err(|_| malformed())? {
            let Ok([oid, value]) = pair.as_sequence().map(Vec::as_slice) else { return Err(malformed()) };
            let oid = oid.as_oid_val().map_err(|_| malformed())?;
            let arcs: Vec<u64> = oid.iter().ok_or_else(malformed)?.collect();
            let Some((number, parent)) = arcs.split_last() else { return Err(malformed()) };
            if parent != arc || members.iter().any(|(known, _)| known == number) {
                return Err(malformed());
            }
            members.push((*number, value.clone()));
        }
        Ok(Self(members))
    }

    fn has(&self, number: u64) -> bool {
        self.0.iter().any(|(known, _)| *known == number)
    }

    fn get(&self, number: u64, name: &'static str) -> Result<&BerObject<'a>, InvalidPckCertificate> {
        let found = self.0.iter().find(|(known, _)| *known == number).map(|(_, value)| value);
        found.ok_or(InvalidPckCertificate::Extension(name))
    }

    fn octets<const N: usize>(
        &self,
        number: u64,
        name: &'static str,
    ) -> Result<[u8; N], InvalidPckCertificate> {
        match self.get(number, name)?.content {
            BerObjectContent::OctetString(octets) => octets.try_into().ok(),
            _ => None,
        }
        .ok_or(InvalidPckCertificate::Extension(name))
    }

    fn number<T: TryFrom<u32>>(&self, number: u64, name: &'static str) -> Result<T, InvalidPckCertificate> {
        let value = self.get(number, name)?.as_u32().ok().and_then(|value| T::try_from(value).ok());
        value.ok_or(InvalidPckCertificate::Extension(name))
    }
}
