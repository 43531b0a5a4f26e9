//! `cloister verify receipt`: whether a gateway's account of one request holds, down to the machine that signed it.

mod gateway;
mod log;
mod show;

use std::path::{Path, PathBuf};

use cloister_aci::report::{Bound, Nonce, bound};
use cloister_aci::verify::{self, Known};
use cloister_aci::{Keyset, sha256};
use cloister_evidence::{AttestationDocument, VersionedAttestation};
use cloister_verifier::Clock;
use cloister_verifier::appraisal::{Connection, Evidence, Nonce as Challenge, appraise};
use serde_json::Value;
use url::Url;

use self::gateway::Gateway;
use super::{expectations, trust};
use crate::commands::Outcome;
use crate::failure::{Exit, Failure};
use crate::files::read;
use crate::session::Session;

/// Largest document, in bytes: a report has an event log and a compose document, a session such a report.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
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
    /// Request body, byte for byte as it was sent; of an encrypted request the decrypted one, compact JSON
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// Body of the answer, byte for byte as it was received; of a stream with all its events and comments
    #[arg(long, value_name = "FILE")]
    response: Option<PathBuf>,
    /// Attestation report [default: asked for with a fresh nonce]
    #[arg(long, value_name = "FILE", required_unless_present = "url")]
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
    let mut expectations = args.expectations.read()?;
    let gateway = args.url.as_ref().map(|url| Gateway::new(url, args.key_file.as_ref())).transpose()?;
    let (receipt, id) = receipt(&args, gateway.as_ref()).await?;
    let (report, nonce) = report(&args, gateway.as_ref()).await?;
    let bound = bound(&report, nonce.as_ref())
        .map_err(|error| refused("the report does not bind its keys").caused_by(error))?;
    let now = u64::try_from(verifier.clock().now().as_second()).unwrap_or_default();
    if args.report.is_none() && bound.keyset.not_after <= now {
        return Err(refused("the gateway shows a keyset that has ended"));
    }

    let mut quoted = [0; 64];
    quoted.iter_mut().zip(bound.report_data).for_each(|(to, from)| *to = from);
    expectations.nonce = Some(Challenge::Own(quoted));
    let evidence = Evidence { document: evidence(&report)?, connection: Connection::None };
    let appraisal = appraise(&verifier, &evidence, &expectations).await.appraisal;

    let (keyset, digest) = keyset(&args, gateway.as_ref(), &receipt, bound).await?;
    let upstream = upstream_session(&args, gateway.as_ref(), &receipt).await?;
    let log = log::look(&args.log, gateway.as_ref(), &receipt, id.is_some()).await?;
    let request = args.request.as_ref().map(|path| read(path, MAX_BODY_BYTES)).transpose()?;
    let response = args.response.as_ref().map(|path| read(path, MAX_BODY_BYTES)).transpose()?;
    let measured = appraisal.subject.as_ref().and_then(|subject| subject.app_id);
    let measured = measured.map(|app_id| format!("app-id:0x{app_id}"));
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
    show::show(&session.output, &appraisal, &findings, report.pointer("/attestation/source_provenance"));
    if let Some(failure) = super::report::failure(&appraisal, &notes, false, appraisal.judged_at) {
        return Err(failure);
    }
    if let Some(failure) = show::failure(&findings) {
        return Err(failure);
    }
    log.save(&args.log)?;
    if !session.output.json {
        session.output.say(&show::conclusion(&appraisal, &findings));
    }
    Ok(())
}

fn refused(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Unverified, message)
}

fn parsed(bytes: &[u8], what: &str) -> Result<Value, Failure> {
    cloister_aci::parse(bytes)
        .map_err(|error| Failure::usage(format!("{what} cannot be read")).caused_by(error))
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
        _ => Ok((file(&path)?, None)),
    }
}

/// The report, with the nonce that it has to be bound to.
async fn report(args: &Args, gateway: Option<&Gateway>) -> Result<(Value, Option<Nonce>), Failure> {
    match (&args.report, gateway) {
        (Some(path), _) => Ok((file(path)?, args.report_nonce.clone())),
        (None, Some(gateway)) => {
            let nonce = hex::encode(args.expectations.nonce_or_fresh()?);
            let nonce: Nonce =
                nonce.parse().map_err(|_| Failure::usage("--nonce must be 16 or 32 bytes in hex"))?;
            Ok((gateway.report(&nonce).await?, Some(nonce)))
        }
        (None, None) => Err(Failure::usage("--report or --url is needed")),
    }
}

/// What the report shows of its machine, in the form that verifiers of machines take.
fn evidence(report: &Value) -> Result<AttestationDocument, Failure> {
    let evidence = report.pointer("/attestation/evidence");
    let text = |name: &str| evidence.and_then(|evidence| evidence.get(name)?.as_str()).map(ToOwned::to_owned);
    if evidence.is_none() {
        return Err(refused("the report has no evidence"));
    }
    let (quote, attestation) = (text("quote"), text("attestation"));
    let said = report.pointer("/attestation/tee_type").and_then(Value::as_str);
    // What cannot be read is for the appraisal to refuse.
    if !is_of_kind(said, quote.as_deref(), attestation.as_deref()) {
        return Err(refused("the report's evidence is of another kind of machine than it says (tee_type)"));
    }
    Ok(AttestationDocument {
        quote,
        event_log: text("event_log").unwrap_or_default(),
        report_data: text("quote_report_data").unwrap_or_default(),
        vm_config: text("vm_config").unwrap_or_default(),
        attestation,
        app_compose: text("app_compose"),
        ..AttestationDocument::default()
    })
}

/// Whether evidence is of the kind of machine that is said, as far as its form tells that.
fn is_of_kind(said: Option<&str>, quote: Option<&str>, attestation: Option<&str>) -> bool {
    let bytes = attestation.and_then(|text| hex::decode(text.strip_prefix("0x").unwrap_or(text)).ok());
    match bytes.and_then(|bytes| VersionedAttestation::decode(&bytes).ok()) {
        Some(versioned) => said.is_some() && said == versioned.evidence.tee_type(),
        None => quote.is_none() || said == Some("tdx"),
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
