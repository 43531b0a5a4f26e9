//! `cloister verify receipt`: whether a gateway's account of one request holds, down to the machine that signed it.

use std::path::{Path, PathBuf};

use cloister_aci::report::{Bound, Nonce};
use cloister_aci::verify::{self, Known};
use cloister_aci::{Keyset, sha256};
use cloister_verifier::Clock;
use cloister_verifier::appraisal::Connection;
use serde_json::{Value, json};
use url::Url;

use super::client::Gateway;
use super::{MAX_DOCUMENT_BYTES, log, parsed, refused, report, show};
use crate::commands::Outcome;
use crate::commands::verify::{self as machine, expectations, trust};
use crate::failure::Failure;
use crate::files::read;
use crate::session::Session;

/// Largest request or answer, in bytes.
const MAX_BODY_BYTES: u64 = 256 << 20;

/// Arguments of `verify receipt`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Receipt, or the id that `x-receipt-id` of the answer gave, with --url
    #[arg(value_name = "RECEIPT")]
    receipt: String,
    /// Gateway: what is not given as a file is asked for there
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    #[expect(clippy::doc_markdown, reason = "the help shows it as it stands")]
    /// File with the key that the request was made with [default: CLOISTER_INFERENCE_KEY]
    #[arg(long, value_name = "FILE", requires = "url")]
    key_file: Option<PathBuf>,
    /// Certificate of the gateway, PEM, as `verify gateway` kept it: no other is taken, whatever authorities say
    #[arg(long, value_name = "FILE", requires = "url")]
    certificate: Option<PathBuf>,
    /// Request body, byte for byte as it was sent; of an encrypted request the decrypted one, compact JSON
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// Body of the answer, byte for byte as it was received; of a stream with all its events and comments
    #[arg(long, value_name = "FILE")]
    response: Option<PathBuf>,
    /// Attestation report [default: asked for with a fresh nonce]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Nonce that --report was asked for with
    #[arg(long, value_name = "HEX", requires = "report")]
    report_nonce: Option<Nonce>,
    /// Keyset that the receipt was signed under, where the gateway has another one by now
    #[arg(long, value_name = "FILE")]
    keyset: Option<PathBuf>,
    /// Session that the receipt names [default: asked for]
    #[arg(long, value_name = "FILE")]
    upstream_session: Option<PathBuf>,
    /// Sessions of which the upstream's had to be one
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    accept_session: Vec<String>,
    #[command(flatten)]
    log: log::LogArgs,
    #[command(flatten)]
    expectations: expectations::ExpectationArgs,
    #[command(flatten)]
    trust: trust::TrustArgs,
}

const AFTER_HELP: &str = "\
First the machine: the report's evidence has to be genuine, and to bind the keys that signed. Then the receipt: who \
signed it, what went in, what came out, what was verified about the upstream, and whether the gateway's public log has \
it. 'source' is what the report says of itself, for you to build and compare. Exit code 0 says that the evidence holds \
and that no check of the receipt fails; 'unchanged' alone may: a gateway that says what it rewrote is honest. The log \
shows that no receipt was taken out or made anew since somebody last looked, and a gateway may say that it has none: what \
it has to show is what you ask for, by the log's key as you know it and the checkpoint that you kept.

Examples:
  cloister verify receipt receipt.json --report report.json --report-nonce HEX --request request.json
  cloister verify receipt rcpt-0123456789abcdef01234567 --url https://gateway.example.com --response answer.json
  cloister verify receipt RECEIPT --url URL --log-key log.key --log-checkpoint log.note --save-log-checkpoint log.note";

/// Judges and reports.
pub(crate) async fn run(args: Args, session: &Session) -> Outcome {
    let (verifier, notes) = args.trust.verifier(session, &Clock::system(), false)?;
    let expectations = args.expectations.read()?;
    let gateway = match &args.url {
        Some(url) => Some(Gateway::new(url, args.certificate.as_deref(), args.key_file.as_ref())?),
        None => None,
    };
    let (receipt, id) = receipt(&args, gateway.as_ref()).await?;
    let (report, nonce) = report(&args, gateway.as_ref()).await?;
    let bound = report::keys(&report, nonce.as_ref())?;
    let now = u64::try_from(verifier.clock().now().as_second()).unwrap_or_default();
    if args.report.is_none() && bound.keyset.not_after <= now {
        return Err(refused("the gateway shows a keyset that has ended"));
    }
    let connection = if args.report.is_some() { Connection::None } else { Connection::JudgedElsewhere };
    let judged = report::judge(&report, bound, connection, &verifier, expectations).await?;
    let measured = judged.subject();
    let appraisal = judged.appraisal;
    let (keyset, digest) = keyset(&args, gateway.as_ref(), &receipt, judged.bound).await?;
    let upstream = upstream_session(&args, gateway.as_ref(), &receipt).await?;
    let log = log::look(&args.log, gateway.as_ref(), &receipt, id.is_some()).await?;
    let request = args.request.as_ref().map(|path| read(path, MAX_BODY_BYTES)).transpose()?;
    let response = args.response.as_ref().map(|path| read(path, MAX_BODY_BYTES)).transpose()?;
    let serving = report.pointer("/service_capabilities/serving").and_then(Value::as_str);
    let findings = verify::receipt(
        &receipt,
        &Known {
            keyset: Some(&keyset),
            keyset_digest: Some(&digest),
            subject: measured.as_deref(),
            id: id.as_deref(),
            request: request.as_deref(),
            response: response.as_deref(),
            session: upstream.as_ref(),
            pinned: &args.accept_session,
            serves_directly: serving == Some("direct"),
            logged: log.logged(),
        },
    );
    let found = show::Found::of_receipt(&findings);
    show::show(&session.output, &appraisal, &found, report::source(&report), &json!({}));
    if let Some(failure) = machine::report::failure(&appraisal, &notes, false, appraisal.judged_at) {
        return Err(failure);
    }
    if let Some(failure) = show::refusal(&found) {
        return Err(failure);
    }
    log.save(&args.log)?;
    if !session.output.json {
        session.output.say(&show::conclusion(&appraisal, &found));
    }
    Ok(())
}

fn file(path: &Path) -> Result<Value, Failure> {
    parsed(&read(path, MAX_DOCUMENT_BYTES)?, &path.display().to_string())
}

/// The receipt, with the id that a gateway was asked for it by.
async fn receipt(args: &Args, gateway: Option<&Gateway>) -> Result<(Value, Option<String>), Failure> {
    let path = PathBuf::from(&args.receipt);
    match gateway {
        Some(gateway) if !path.exists() => {
            let receipt = gateway.receipt(&args.receipt).await?;
            Ok((receipt, Some(args.receipt.clone())))
        }
        None if !path.exists() => {
            let message = format!("{} is no file: --url says which gateway to ask for it", args.receipt);
            Err(Failure::usage(message))
        }
        _ => Ok((file(&path)?, None)),
    }
}

/// The report, with the nonce that it has to be bound to.
async fn report(args: &Args, gateway: Option<&Gateway>) -> Result<(Value, Option<Nonce>), Failure> {
    match (&args.report, gateway) {
        (Some(path), _) => Ok((file(path)?, args.report_nonce.clone())),
        (None, Some(gateway)) => {
            let nonce = report::nonce(&args.expectations)?;
            let report = gateway.report(&nonce).await.map_err(|failure| {
                failure.hint(
                    "without evidence of its machine nothing says who signed the receipt; --report has some",
                )
            })?;
            Ok((report, Some(nonce)))
        }
        (None, None) => Err(Failure::usage("--report or --url is needed")),
    }
}

/// The keyset that the receipt names, with its digest: the attested one, or a former one with the same key for
/// receipts. Evidence for that key is evidence for all it signed.
async fn keyset(
    args: &Args,
    gateway: Option<&Gateway>,
    receipt: &Value,
    attested: Bound,
) -> Result<(Keyset, String), Failure> {
    let named = receipt.get("workload_keyset_digest").and_then(Value::as_str).unwrap_or_default();
    if named == attested.digest {
        return Ok((attested.keyset, attested.digest));
    }
    let former = match (&args.keyset, gateway) {
        (Some(path), _) => Some(file(path)?),
        (None, Some(gateway)) => gateway.keyset(named).await?,
        (None, None) => None,
    };
    let Some(former) = former else { return Ok((attested.keyset, attested.digest)) };
    let canonical = cloister_aci::canonical(&former)
        .map_err(|error| refused("the former keyset cannot be read").caused_by(error))?;
    let keyset: Keyset = serde_json::from_value(former)
        .map_err(|error| refused("the former keyset cannot be read").caused_by(error))?;
    let digest = sha256(&canonical);
    let key_id = receipt.get("key_id").and_then(Value::as_str).unwrap_or_default();
    let is_attested = keyset.receipt_key(key_id).is_some_and(|key| {
        attested
            .keyset
            .receipt_signing_keys
            .iter()
            .any(|now| now.public_key == key.public_key && now.algo == key.algo)
    });
    // A keyset whose key nobody attests proves nothing: the receipt is judged by the one that is attested.
    if is_attested { Ok((keyset, digest)) } else { Ok((attested.keyset, attested.digest)) }
}

/// The record of the session that the receipt names, if it names one.
async fn upstream_session(
    args: &Args,
    gateway: Option<&Gateway>,
    receipt: &Value,
) -> Result<Option<Value>, Failure> {
    if let Some(path) = &args.upstream_session {
        return file(path).map(Some);
    }
    let events = receipt.get("event_log").and_then(Value::as_array);
    let id = events.into_iter().flatten().find_map(|event| event.get("session_id")?.as_str());
    match (gateway, id) {
        (Some(gateway), Some(id)) => gateway.session(id).await,
        _ => Ok(None),
    }
}
