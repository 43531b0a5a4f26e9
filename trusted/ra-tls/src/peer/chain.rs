use std::time::Duration;

use jiff::Timestamp;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::{Issuers, PeerError};

/// Most certificates that a client may show.
const MAX_CLIENT_CHAIN: usize = 4;
/// Most certificates that a server may show: an authority that renews its root shows each one, signed by the
/// one before. They fit into a TLS handshake message of 64 KiB.
pub const MAX_SERVER_CHAIN: usize = 49;

/// Which end of a connection a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It accepted the connection.
    Server,
    /// It opened the connection.
    Client,
}

/// Checks dates, signature and purpose of the leaf, and returns it.
pub(super) fn check<'a>(
    chain: &'a [CertificateDer<'_>],
    issuers: &Issuers,
    role: Role,
    now: Timestamp,
) -> Result<&'a CertificateDer<'a>, PeerError> {
    let leaf = chain.first().ok_or(PeerError::NoCertificate)?;
    let most = match role {
        Role::Client => MAX_CLIENT_CHAIN,
        Role::Server => MAX_SERVER_CHAIN,
    };
    if chain.len() > most {
        return Err(PeerError::Chain(webpki::Error::MaximumPathDepthExceeded));
    }
    let others = chain.get(1..).unwrap_or_default();
    let anchors = match issuers {
        // A leaf may have signed itself, or anything that comes along may have: what is signed well is
        // whole, and more than that is not claimed.
        Issuers::Any => anchors(chain.iter()),
        Issuers::Only(authorities) => anchors(authorities.iter()),
    };
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    EndEntityCert::try_from(leaf)
        .and_then(|end| {
            end.verify_for_usage(
                ring::default_provider().signature_verification_algorithms.all,
                &anchors,
                others,
                UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
                match role {
                    Role::Server => KeyUsage::server_auth(),
                    Role::Client => KeyUsage::client_auth(),
                },
                None,
                None,
            )
            .map(drop)
        })
        .map_err(PeerError::Chain)?;
    Ok(leaf)
}

/// Those that can be trust anchors; what cannot be read vouches for nothing.
fn anchors<'a>(certificates: impl Iterator<Item = &'a CertificateDer<'a>>) -> Vec<TrustAnchor<'a>> {
    certificates.filter_map(|certificate| anchor_from_trusted_cert(certificate).ok()).collect()
}
