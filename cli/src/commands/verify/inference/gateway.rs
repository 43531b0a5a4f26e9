//! `cloister verify gateway`: whether an inference gateway is what it should be, before anything secret is sent there, and
//! whether TLS ends at it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cloister_aci::verify::gateway::{self as check, Known};
use cloister_ra_tls::public_key_of;
use cloister_verifier::Clock;
use cloister_verifier::appraisal::{Appraisal, ClaimId, Connection, Outcome as Claimed};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::client::Gateway;
use super::{refused, report, show};
use crate::args::path_segment;
use crate::commands::Outcome;
use crate::commands::verify::target::{self, Name, Place};
use crate::commands::verify::{self as machine, expectations, trust};
use crate::failure::{Exit, Failure};
use crate::files::{FOR_EVERYBODY, replace};
use crate::session::Session;

/// Where services take TLS.
const HTTPS_PORT: u16 = 443;

/// Arguments of `verify gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// `https://` or `http://` address of the gateway, app id, or any name of a CVM of the workspace, whose port 443 it is then
    #[arg(value_name = "TARGET", value_parser = path_segment())]
    target: String,
    /// Keep the certificate that the connection ended at, PEM, for clients to trust; needs the application and
    /// --key-provider-id
    #[arg(long, value_name = "FILE")]
    save_certificate: Option<PathBuf>,
    /// Accept that there is no TLS, or that the gateway names no key for it, such as where fields are encrypted
    #[arg(long, conflicts_with = "save_certificate")]
    any_tls: bool,
    /// Port of the ingress for TLS, for a name of a CVM [default: 8743 for a cloud on this machine, else 443]
    #[arg(long, value_name = "PORT")]
    https_port: Option<u16>,
    #[command(flatten)]
    expectations: expectations::ExpectationArgs,
    #[command(flatten)]
    trust: trust::TrustArgs,
}

const AFTER_HELP: &str = "\
First the machine: the report's evidence has to be genuine, and to bind the gateway's keys. Then these: 'tls' says \
whether the connection ended at one of them. No certificate authority is asked about the gateway, and nothing secret is \
sent there. Exit code 0 says that the evidence holds, and that TLS ends at a key that the gateway names.

Without --compose, --compose-hash or --app-id, evidence shows only that some machine runs some application; without \
--key-provider-id the KMS that gave it its keys, and has them, can be anybody's; hardware needs --registers. A key that \
the gateway reads from files is worth what its document says of those.

A client that trusts the kept certificate, and nothing else, sends nothing to anybody else. Many know the system's \
authorities besides: tell them not to. A CVM that is called like this command is verified by `cloister verify -- gateway`.

Examples:
  cloister verify gateway inference --compose-hash HASH --key-provider-id KMS --save-certificate gateway.pem
  cloister verify gateway https://APP_ID-443s.apps.example.org --compose-hash HASH --key-provider-id KMS \\
    --registers registers.json --production
  SSL_CERT_FILE=gateway.pem python client.py    # OpenAI's and Anthropic's clients; others may not heed it
  curl --capath /dev/null --cacert gateway.pem https://APP_ID-443s.apps.example.org/v1/models";

/// Judges and reports.
pub(crate) async fn run(args: Args, session: &Session) -> Outcome {
    let (verifier, notes) = args.trust.verifier(session, &Clock::system(), false)?;
    let mut expectations = args.expectations.read()?;
    let nonce = report::nonce(&args.expectations)?;
    let url = if args.target.contains("://") {
        if args.https_port.is_some() {
            return Err(Failure::usage("--https-port is for the name of a CVM: an address has its own"));
        }
        target::address(&args.target)?
    } else {
        Place::of(session, &args.target, args.https_port, &mut expectations).await?.inside(HTTPS_PORT)?
    };
    let gateway = Gateway::unproven(&url)?;
    let url = gateway.base().clone();
    let report = gateway.report(&nonce).await?;
    let certificate = gateway.certificate()?;
    let bound = report::keys(&report, Some(&nonce))?;
    let event_log = report.pointer("/attestation/evidence/event_log").and_then(Value::as_str);
    Name::of(&url).expect(&mut expectations, event_log.unwrap_or_default());
    let is_named = expectations.compose.is_some() || expectations.app_id.is_some();
    let judged = report::judge(&report, bound, Connection::JudgedElsewhere, &verifier, expectations).await?;

    let host = url.host_str().unwrap_or_default();
    let findings = check::gateway(&Known {
        keyset: &judged.bound.keyset,
        subject: judged.subject().as_deref(),
        host,
        tls_key: certificate.as_deref().map(key_hash).transpose()?,
        at: u64::try_from(judged.appraisal.judged_at.as_second()).unwrap_or_default(),
    });
    let found = show::Found::of_gateway(&findings, args.any_tls);
    let address = url.as_str().trim_end_matches('/');
    let kept = match (&args.save_certificate, &certificate) {
        (Some(path), Some(certificate)) if judged.appraisal.verified && found.holds() => {
            let worth = is_worth_keeping(&judged.appraisal, is_named, certificate, host);
            worth.and_then(|()| keep(path, certificate)).map(|()| true)
        }
        _ => Ok(false),
    };
    let more = json!({
        "url": address, "keyset_digest": judged.bound.digest, "certificate_kept": matches!(kept, Ok(true)),
    });
    show::show(&session.output, &judged.appraisal, &found, report::source(&report), &more);
    let at = judged.appraisal.judged_at;
    if let Some(failure) = machine::report::failure(&judged.appraisal, &notes, false, at) {
        return Err(failure);
    }
    if let Some(failure) = show::refusal(&found) {
        return Err(failure);
    }
    kept?;
    if !session.output.json {
        session.output.say(&format!("{address}: {}", show::conclusion(&judged.appraisal, &found)));
    }
    Ok(())
}

fn keep(path: &Path, certificate: &[u8]) -> Result<(), Failure> {
    let pem = pem::encode(&pem::Pem::new("CERTIFICATE", certificate));
    replace(path, pem.as_bytes(), FOR_EVERYBODY)
}

/// SHA-256 of a certificate's key (`SubjectPublicKeyInfo`, DER).
fn key_hash(certificate: &[u8]) -> Result<[u8; 32], Failure> {
    let key = public_key_of(certificate)
        .map_err(|error| refused("the gateway's certificate cannot be read").caused_by(error))?;
    Ok(Sha256::digest(key).into())
}

/// Whether a certificate may be kept for clients: it is known whose key it is, of an application that was named, and those that
/// trust it alone take it.
fn is_worth_keeping(
    appraisal: &Appraisal,
    is_named: bool,
    certificate: &[u8],
    host: &str,
) -> Result<(), Failure> {
    let unknown = |message: &str| Failure::new(Exit::Unverified, format!("nothing is kept: {message}"));
    let provider = appraisal.claim(ClaimId::KeyProvider);
    if provider.is_none_or(|claim| claim.outcome != Claimed::Holds) {
        return Err(unknown("whoever gave the gateway its keys has that for TLS, too, and could be anybody")
            .hint(
                "name the KMS as you know it: --key-provider-id, \"Root authority\" of `cloister kms status`",
            ));
    }
    if !is_named {
        return Err(
            unknown("the application could be any").hint("name its document: --compose or --compose-hash")
        );
    }
    is_taken(certificate, host).map_err(|error| {
        let useless = Failure::new(
            Exit::Failed,
            "nothing is kept: clients that trust this certificate alone would not take it",
        );
        useless.caused_by(error).hint(if host.parse::<IpAddr>().is_ok() || host.starts_with('[') {
            "name the gateway by a host name, not by an address"
        } else {
            "one of an authority is trusted by that; tls.self_signed makes the gateway's own"
        })
    })
}

/// What a client says of a host's certificate that trusts it alone.
fn is_taken(certificate: &[u8], host: &str) -> Result<(), rustls::Error> {
    let other = |error: &dyn std::error::Error| rustls::Error::General(error.to_string());
    let certificate = CertificateDer::from(certificate);
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| other(&error))?;
    let name = ServerName::try_from(host).map_err(|error| other(&error))?;
    verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).map(drop)
}
