//! `cloister kms verify`: who made the roots, and that they follow from each other.

use cloister_evidence::{Aggregates, EventLog, LaunchIdentity, PlatformEvidence, VersionedAttestation};
use cloister_kms_api::{BootstrapInfo, Meta, RootInfo, method, statements};
use cloister_ra_tls::public_key_of_pem;
use cloister_verifier::{Clock, VerifiedQuote, Verifier, VerifyError};
use serde_json::json;

use super::checks::Checks;
use super::connection::ConnectionArgs;
use crate::commands::Outcome;
use crate::commands::verify::TrustArgs;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Arguments of `kms verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A KMS that made its own first root shows evidence that the measured program did so and kept the keys: who runs \
it does not know them. A KMS that took its roots from another one shows none; give the root key of that one.

Example: cloister kms verify --root-key HEX --measurement HASH --production")]
pub(crate) struct Args {
    /// Root key that is known from elsewhere, compressed secp256k1: the current root must be it or follow from it
    #[arg(long, value_name = "HEX", value_parser = k256_key)]
    root_key: Option<[u8; 33]>,
    /// What the KMS must have been when it made the first root: its `mr_aggregated`
    #[arg(long, value_name = "HASH", value_parser = hash)]
    measurement: Option<[u8; 32]>,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    trust: TrustArgs,
}

/// A compressed secp256k1 key in hex.
pub(super) fn k256_key(text: &str) -> Result<[u8; 33], String> {
    bytes(text)
}

fn hash(text: &str) -> Result<[u8; 32], String> {
    bytes(text)
}

fn bytes<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text.strip_prefix("0x").unwrap_or(text), &mut bytes)
        .map_err(|_| format!("expected {N} bytes in hex"))?;
    Ok(bytes)
}

/// Checks what the KMS says about itself.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let clock = Clock::system();
    let (verifier, _) = args.trust.verifier(session, &clock, false)?;
    let meta: Meta = args.connection.open(session)?.call(method::META, &json!({})).await?;
    let mut checks = Checks::default();
    let mut made = None;
    if let Some(info) = &meta.bootstrap_info {
        bootstrap(&mut checks, info, &verifier, args.measurement.as_ref()).await?;
        let is_first = meta.roots.first().is_some_and(|first| {
            first.version == 1 && first.ca_pubkey == info.ca_pubkey && first.k256_pubkey == info.k256_pubkey
        });
        checks.check(
            "first-root",
            is_first,
            "Root 1 is the one that the evidence is about.",
            "Root 1 is not the one that the evidence is about.",
        );
        made = info.k256_pubkey.as_ref().try_into().ok();
    } else {
        let sentence = "The roots come from another KMS, and no evidence of their making is shown.";
        if args.measurement.is_some() {
            checks.fails("bootstrap", sentence);
        } else {
            checks.open("bootstrap", sentence);
        }
    }
    pinned(&mut checks, &meta, args.root_key, made);
    current(&mut checks, &meta);
    let more = json!({ "k256_pubkey": meta.k256_pubkey, "roots": meta.roots, "is_dev": meta.is_dev });
    checks.conclude(more, "the KMS", session)
}

/// Whether the current root follows from one that is trusted: a pinned one, or else the attested first.
fn pinned(checks: &mut Checks, meta: &Meta, root_key: Option<[u8; 33]>, made: Option<[u8; 33]>) {
    let id = "succession";
    let Some(trusted) = root_key.or(made) else {
        checks.fails(
            id,
            "Nothing says which root to trust: give one that is known from elsewhere, --root-key HEX.",
        );
        return;
    };
    let whose = if root_key.is_some() { "the expected one" } else { "the one that was attested" };
    match statements::current_root(&meta.roots, &trusted) {
        Ok(current) if current.k256_pubkey.as_ref() == trusted => {
            checks.holds(id, format!("The current root, version {}, is {whose}.", current.version));
        }
        Ok(current) => checks.holds(
            id,
            format!("The current root, version {}, follows from {whose} by signatures.", current.version),
        ),
        Err(error) => checks.fails(id, format!("The current root does not follow from {whose}: {error}.")),
    }
}

/// Whether the other members speak of the last root, too.
fn current(checks: &mut Checks, meta: &Meta) {
    let authority = public_key_of_pem(&meta.ca_cert).ok();
    let fits = meta.roots.last().is_some_and(|RootInfo { ca_pubkey, k256_pubkey, .. }| {
        *k256_pubkey == meta.k256_pubkey && authority.as_deref() == Some(ca_pubkey.as_ref())
    });
    checks.check(
        "certificate",
        fits,
        "The certificate authority is that of the current root.",
        "The certificate authority is not that of the current root.",
    );
}

/// Whether a measured program made the first root.
async fn bootstrap(
    checks: &mut Checks,
    info: &BootstrapInfo,
    verifier: &Verifier,
    measurement: Option<&[u8; 32]>,
) -> Outcome {
    let id = "bootstrap";
    let Ok(k256_pubkey) = info.k256_pubkey.as_ref().try_into() else {
        checks.fails(id, "The root key has not the form of one.");
        return Ok(());
    };
    let attestation = match VersionedAttestation::decode(info.attestation.as_ref()) {
        Ok(attestation) => attestation,
        Err(error) => {
            checks.fails(id, format!("The evidence cannot be read: {error}."));
            return Ok(());
        }
    };
    let (PlatformEvidence::Tdx { quote, .. }, Ok(events)) = (&attestation.evidence, attestation.event_log())
    else {
        checks.fails(id, "The evidence is not that of a TDX machine, or its event log contradicts itself.");
        return Ok(());
    };
    let quote = match verifier.quote(quote).await {
        Ok(quote) => quote,
        Err(error @ (VerifyError::Collateral(_) | VerifyError::Busy | VerifyError::Interrupted)) => {
            return Err(Failure::new(Exit::Unreachable, "the evidence could not be judged")
                .caused_by(error)
                .hint("name a collateral service that can be reached: --pccs URL"));
        }
        Err(error) => {
            checks.fails(id, format!("The evidence is refused: {error}."));
            return Ok(());
        }
    };
    let expected = statements::bootstrap_report_data(info.ca_pubkey.as_ref(), &k256_pubkey);
    checks.check(
        id,
        quote.report_data == expected,
        if quote.trust_root.is_hardware() {
            format!("A machine under the {} made the first root.", quote.trust_root)
        } else {
            "A machine under a development root made the first root: NO HARDWARE PROTECTION.".to_owned()
        },
        "The evidence was made over other keys.",
    );
    platform(checks, &quote);
    measured(checks, &quote, &events, measurement);
    Ok(())
}

fn platform(checks: &mut Checks, quote: &VerifiedQuote) {
    let advisories = if quote.advisory_ids.is_empty() {
        String::new()
    } else {
        format!(" ({})", quote.advisory_ids.join(", "))
    };
    let status = format!("Its platform is {} by today's collateral{advisories}.", quote.tcb_status);
    // What the vendor says today about the platform of then decides nothing about a root that exists.
    if quote.tcb_status.to_string() == "UpToDate" {
        checks.holds("platform", status);
    } else {
        checks.open("platform", status);
    }
}

fn measured(checks: &mut Checks, quote: &VerifiedQuote, events: &EventLog, expected: Option<&[u8; 32]>) {
    let id = "measurement";
    let Some(registers) = quote.registers else {
        checks.fails(id, "The evidence is that of an enclave, not of a machine.");
        return;
    };
    if !events.builds(&registers).is_ok_and(|built| built.into_iter().all(|built| built)) {
        checks.fails(id, "The event log does not lead to the registers.");
        return;
    }
    let launch = LaunchIdentity {
        config_id: quote.mr_config_id,
        owner: quote.mr_owner,
        owner_config: quote.mr_owner_config,
    };
    let found = Aggregates::new(&registers, &launch, None).mr_aggregated;
    let shown = hex::encode(found);
    match expected {
        None => checks.open(id, format!("It measured as {shown}; nothing was given to compare with.")),
        Some(expected) => checks.check(
            id,
            found == *expected,
            format!("It measured as expected: {shown}."),
            format!("It measured as {shown}, not as expected."),
        ),
    }
}
