use std::path::Path;

use jiff::{Timestamp, ToSpan, civil, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::files::{create_private, read_if_present, write_private};
use crate::{FleetTlsError, Identity};

const AUTHORITY_YEARS: i64 = 20;
const HOLDER_YEARS: i64 = 5;

/// Key and certificate of one holder, PEM, with the authority's certificate.
#[derive(Clone)]
pub struct Credentials {
    /// Certificate of the holder.
    pub certificate: String,
    /// Its private key, PKCS#8.
    pub private_key: String,
    /// Certificate of the installation's authority.
    pub authority: String,
}

impl Credentials {
    /// Reads `<name>.crt`, `<name>.key` and `authority.crt` of a directory; `None` when any is missing.
    pub fn load(dir: &Path, name: &str) -> Result<Option<Self>, FleetTlsError> {
        let read = |file: String| read_if_present(&dir.join(file));
        let (certificate, private_key, authority) =
            (read(format!("{name}.crt"))?, read(format!("{name}.key"))?, read("authority.crt".to_owned())?);
        Ok(match (certificate, private_key, authority) {
            (Some(certificate), Some(private_key), Some(authority)) => {
                Some(Self { certificate, private_key, authority })
            }
            _ => None,
        })
    }

    /// Writes the three files that [`Credentials::load`] reads; the key is readable by its owner only.
    pub fn save(&self, dir: &Path, name: &str) -> Result<(), FleetTlsError> {
        write_private(&dir.join(format!("{name}.key")), &self.private_key)?;
        write_private(&dir.join("authority.crt"), &self.authority)?;
        write_private(&dir.join(format!("{name}.crt")), &self.certificate)
    }
}

/// The installation's certificate authority.
pub struct Authority {
    certificate_pem: String,
    certificate_der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Loads the authority kept in `dir`, or mints one there at first start. Processes that share `dir`
    /// and start at the same moment get the same one.
    pub fn load_or_create(dir: &Path, now: Timestamp) -> Result<Self, FleetTlsError> {
        let (certificate_path, key_path) = (dir.join("authority.crt"), dir.join("authority.key"));
        // The key comes first: whoever finds no certificate makes one for the key that there is.
        let key_pem = match read_if_present(&key_path)? {
            Some(pem) => pem,
            None => create_private(&key_path, &KeyPair::generate()?.serialize_pem())?,
        };
        let certificate_pem = match read_if_present(&certificate_path)? {
            Some(pem) => pem,
            None => create_private(&certificate_path, &self_signed(&key_pem, now)?)?,
        };
        Self::from_pem(certificate_pem, &key_pem)
    }

    fn from_pem(certificate_pem: String, key_pem: &str) -> Result<Self, FleetTlsError> {
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, KeyPair::from_pem(key_pem)?)?;
        let certificate_der = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|_| FleetTlsError::MissingPem("certificate"))?;
        Ok(Self { certificate_pem, certificate_der, issuer })
    }

    /// PEM certificate that peers trust.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// DER certificate that join tokens pin.
    #[must_use]
    pub fn certificate_der(&self) -> &CertificateDer<'static> {
        &self.certificate_der
    }

    /// Issues a key and certificate to the holder of `identity`, reachable under `names` (host names or
    /// IP addresses).
    pub fn issue(
        &self,
        identity: &Identity,
        names: &[String],
        now: Timestamp,
    ) -> Result<Credentials, FleetTlsError> {
        let key = KeyPair::generate()?;
        let certificate = holder_params(identity, names, now)?.signed_by(&key, &self.issuer)?;
        Ok(Credentials {
            certificate: certificate.pem(),
            private_key: key.serialize_pem(),
            authority: self.certificate_pem.clone(),
        })
    }

    /// Issues a certificate for the key of a PEM request. Only the key is taken from the request: what
    /// its holder is and where it lives, the caller has checked.
    pub fn sign_request(
        &self,
        request_pem: &str,
        identity: &Identity,
        names: &[String],
        now: Timestamp,
    ) -> Result<String, FleetTlsError> {
        let request = CertificateSigningRequestParams::from_pem(request_pem)?;
        Ok(holder_params(identity, names, now)?.signed_by(&request.public_key, &self.issuer)?.pem())
    }

    /// Issues a server certificate for plain web clients, such as the ingress' wildcard name.
    pub fn issue_server(&self, names: &[String], now: Timestamp) -> Result<Credentials, FleetTlsError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, "Cloister ingress");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        set_validity(&mut params, now, HOLDER_YEARS);
        Ok(Credentials {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            private_key: key.serialize_pem(),
            authority: self.certificate_pem.clone(),
        })
    }
}

fn self_signed(key_pem: &str, now: Timestamp) -> Result<String, FleetTlsError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Cloister installation authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, AUTHORITY_YEARS);
    Ok(params.self_signed(&KeyPair::from_pem(key_pem)?)?.pem())
}

/// A fresh key and a PEM certificate request for it, as a node sends it at enrolment.
pub fn make_node_request() -> Result<(String, String), FleetTlsError> {
    let key = KeyPair::generate()?;
    let request = CertificateParams::default().serialize_request(&key)?.pem()?;
    Ok((key.serialize_pem(), request))
}

fn holder_params(
    identity: &Identity,
    names: &[String],
    now: Timestamp,
) -> Result<CertificateParams, FleetTlsError> {
    let mut params = CertificateParams::new(names.to_vec())?;
    let uri = identity.to_string();
    params.distinguished_name.push(DnType::CommonName, uri.as_str());
    params.subject_alt_names.push(SanType::URI(uri.as_str().try_into()?));
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    set_validity(&mut params, now, HOLDER_YEARS);
    Ok(params)
}

/// From yesterday, for clocks that disagree, for whole years.
fn set_validity(params: &mut CertificateParams, now: Timestamp, years: i64) {
    let today = now.to_zoned(TimeZone::UTC).date();
    let at = |date: civil::Date| {
        rcgen::date_time_ymd(
            i32::from(date.year()),
            u8::try_from(date.month()).unwrap_or(1),
            u8::try_from(date.day()).unwrap_or(1),
        )
    };
    params.not_before = at(today.saturating_sub(1.day()));
    params.not_after = at(today.saturating_add(years.years()));
}
