//! `cloister verify gateway`: whether an inference gateway is what it should be, before anything secret is sent there, and
//! whether TLS ends at it.

use std::path::PathBuf;

use cloister_aci::verify::Finding;
use cloister_aci::verify::gateway::{Check, Known, gateway};
use cloister_ra_tls::public_key_of_pem;
use cloister_verifier::Clock;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::client::Gateway;
use super::{refused, report, show};
use crate::args::path_segment;
use crate::commands::Outcome;
use crate::commands::verify::target::{self, Name, Place};
use crate::commands::verify::{self as machine, expectations, trust};
use crate::failure::{Exit, Failure};
use crate::files::replace;
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
    /// Keep the certificate that the connection ended at, PEM, if everything holds: clients that trust this one alone send
    /// nothing to anybody else
    #[arg(long, value_name = "FILE")]
    save_certificate: Option<PathBuf>,
    /// Port of the ingress for TLS [default: 8743 for a cloud on this machine, else 443]
    #[arg(long, value_name = "PORT")]
    https_port: Option<u16>,
    #[command(flatten)]
    expectations: expectations::ExpectationArgs,
    #[command(flatten)]
    trust: trust::TrustArgs,
}

const AFTER_HELP: &str = "\
First the machine: the report's evidence has to be genuine, and to bind the gateway's keys. Then these: 'tls' says \
whether the connection ended at one of them. No certificate authority is asked, and nothing secret is sent. Where \
somebody else ends TLS and nothing speaks against the gateway, 'tls' is open (mark -) and the exit code 0: \
--save-certificate demands that it holds.

Without --compose, --compose-hash or --app-id, evidence shows only that some machine runs some application.

Examples:
  cloister verify gateway inference --compose-hash HASH --save-certificate gateway.pem
  cloister verify gateway https://APP_ID-443s.apps.example.org --compose-hash HASH --production
  SSL_CERT_FILE=gateway.pem python client.py
  NODE_EXTRA_CA_CERTS=gateway.pem node client.mjs
  curl --cacert gateway.pem https://APP_ID-443s.apps.example.org/v1/models";

/// Judges and reports.
pub(crate) async fn run(args: Args, session: &Session) -> Outcome {
    let (verifier, notes) = args.trust.verifier(session, &Clock::system(), false)?;
    let mut expectations = args.expectations.read()?;
    let url = if args.target.contains("://") {
        target::address(&args.target)?
    } else {
        Place::of(session, &args.target, args.https_port, &mut expectations).await?.inside(HTTPS_PORT)?
    };
    let nonce = report::nonce(&args.expectations)?;
    let (report, certificate) = Gateway::unproven(&url)?.report(&nonce).await?;
    let certificate = certificate.map(|der| pem::encode(&pem::Pem::new("CERTIFICATE", der)));
    let tls_key = certificate.as_deref().map(public_key_of_pem).transpose();
    let tls_key =
        tls_key.map_err(|error| refused("the gateway's certificate cannot be read").caused_by(error))?;
    let bound = report::keys(&report, Some(&nonce))?;
    let event_log = report.pointer("/attestation/evidence/event_log").and_then(Value::as_str);
    Name::of(&url).expect(&mut expectations, event_log.unwrap_or_default());
    let judged = report::judge(&report, bound, &verifier, expectations).await?;

    let findings = gateway(&Known {
        keyset: &judged.bound.keyset,
        subject: judged.subject().as_deref(),
        host: url.host_str().unwrap_or_default(),
        tls_key: tls_key.map(|key| Sha256::digest(key).into()),
        at: u64::try_from(judged.appraisal.judged_at.as_second()).unwrap_or_default(),
    });
    let found = show::Found::of_gateway(&findings);
    let more = json!({ "url": url, "keyset_digest": judged.bound.digest });
    show::show(&session.output, &judged.appraisal, &found, report::source(&report), &more);
    if let Some(failure) =
        machine::report::failure(&judged.appraisal, &notes, false, judged.appraisal.judged_at)
    {
        return Err(failure);
    }
    if let Some(failure) = show::refusal(&found) {
        return Err(failure);
    }
    if let Some(path) = &args.save_certificate {
        let proven = certificate.filter(|_| findings.contains(&(Check::Tls, Finding::Holds)));
        let proven = proven.ok_or_else(|| {
            Failure::new(Exit::Unverified, "nothing proves whom TLS ends at: no certificate is kept")
                .hint("ask the gateway itself: TARGET has to lead to where it ends TLS")
        })?;
        replace(path, proven.as_bytes())?;
    }
    if !session.output.json {
        session.output.say(&format!("{url}: {}", show::conclusion(&judged.appraisal, &found)));
    }
    Ok(())
}
