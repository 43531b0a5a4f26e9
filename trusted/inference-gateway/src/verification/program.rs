//! Verification by a program of the operator's: one JSON object in, one out, within limits. Whatever goes wrong is a
//! failure; nothing of a request is told to it.

use std::process::Stdio;
use std::time::Duration;

use cloister_aci::session::{ChannelBinding, Claim, ClaimSource, Claims, Evidence, Fact};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::aci_service::FAMILY;
use super::finding::{Finding, Pins};
use super::reason::Reason;
use super::target::{Program, Target};
use crate::config::VerifierScope;

const REQUEST_VERSION: &str = "aci.provider-verifier.request.v1";
/// Longest answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 4 << 20;
/// Most facts of a session, and the longest name and text of one, in characters.
const MAX_FACTS: usize = 64;
const MAX_FACT_NAME: usize = 64;
const MAX_FACT_TEXT: usize = 1024;
const MAX_VERIFIER_ID: usize = 128;

/// Asks a program, for at most `patience`.
pub(super) async fn verify(
    target: &Target,
    program: &Program,
    patience: Duration,
) -> Result<Finding, Reason> {
    let request = request(target, program, patience);
    let answer = tokio::time::timeout(patience, ask(program, request))
        .await
        .unwrap_or_else(|_| Err("the verifier program took too long".into()))?;
    read(target, program, &answer)
}

fn request(target: &Target, program: &Program, patience: Duration) -> Vec<u8> {
    let request = json!({
        "api_version": REQUEST_VERSION,
        "provider": program.provider,
        "upstream_name": target.name,
        "url_origin": target.origin,
        "model_id": program.model,
        // What is verified is a channel, before there is a request.
        "forwarded_body_hash": Value::Null,
        "required": true,
        "timeout_seconds": patience.as_secs(),
        "provider_options": program.options,
    });
    request.to_string().into_bytes()
}

/// Kills a program and what it started, unless it ended.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    const fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // One that is gone needs no killing.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// What a program answers. It and its children are killed when this is dropped before they end.
async fn ask(program: &Program, request: Vec<u8>) -> Result<Vec<u8>, Reason> {
    let (path, arguments) = program.command.split_first().ok_or("there is no verifier program")?;
    let mut child = Command::new(path)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|_| "the verifier program cannot be started")?;
    // After the child, so that it is dropped first: nobody else can have the group's number before that.
    let mut group = Group::of(&child);
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the verifier program cannot be spoken with".into());
    };
    let telling = async move {
        // A program that does not want to know everything may still know the answer.
        let _ = stdin.write_all(&request).await;
    };
    let mut answer = Vec::new();
    let mut limited = stdout.take(MAX_ANSWER_BYTES + 1);
    let ((), heard) = tokio::join!(telling, limited.read_to_end(&mut answer));
    heard.map_err(|_| "the verifier program's answer broke off")?;
    if u64::try_from(answer.len()).is_ok_and(|length| length > MAX_ANSWER_BYTES) {
        return Err("the verifier program's answer is too long".into());
    }
    let status = child.wait().await.map_err(|_| "the verifier program cannot be waited for")?;
    group.ended();
    if status.success() { Ok(answer) } else { Err("the verifier program failed".into()) }
}

#[derive(Deserialize)]
struct Answer {
    result: String,
    #[serde(default)]
    verifier_id: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    evidence: Option<Value>,
    #[serde(default)]
    channel_bindings: Vec<ChannelBinding>,
    #[serde(default)]
    provider_claims: Map<String, Value>,
    #[serde(default)]
    attested_scope: Option<VerifierScope>,
}

pub(super) fn read(target: &Target, program: &Program, bytes: &[u8]) -> Result<Finding, Reason> {
    const MALFORMED: &str = "the verifier program's answer cannot be read";
    let document = cloister_aci::parse(bytes).map_err(|_| MALFORMED)?;
    let answer = Answer::deserialize(&document).map_err(|_| MALFORMED)?;
    match answer.result.as_str() {
        "verified" => {}
        "failed" => {
            return Err(answer.reason.map_or_else(|| "the verifier program says so".into(), Reason::from));
        }
        _ => return Err("the verifier program's result is unknown".into()),
    }
    let scope = if program.model.is_some() { VerifierScope::Model } else { VerifierScope::Router };
    if answer.attested_scope != Some(scope) {
        return Err("the verifier program attests another scope".into());
    }
    let verifier_id = answer.verifier_id.unwrap_or_else(|| "external".to_owned());
    let is_id =
        verifier_id.len() <= MAX_VERIFIER_ID && verifier_id.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_id {
        return Err(MALFORMED.into());
    }
    if verifier_id.to_ascii_lowercase().starts_with(FAMILY) {
        return Err("the verifier program takes the name of a verifier of the gateway".into());
    }
    // Other bindings may be true, but nothing here enforces them.
    let digests = answer.channel_bindings.iter().filter_map(|binding| match binding {
        ChannelBinding::TlsSpki { origin, spki_sha256, .. } if *origin == target.origin => {
            Some(spki_sha256.as_str())
        }
        _ => None,
    });
    let pins = Pins::from_hex(digests)
        .ok_or("the verifier program names no TLS key of the upstream that can be enforced")?;
    Ok(Finding {
        verifier_id,
        identity: program.model.as_ref().map(|model| json!({"model_id": model})),
        pins,
        claims: claims(answer.provider_claims).ok_or(MALFORMED)?,
        evidence: evidence(answer.evidence.as_ref(), bytes).ok_or(MALFORMED)?,
        not_after: None,
    })
}

/// The claims that have a meaning here, and everything else as facts without fractions.
fn claims(mut said: Map<String, Value>) -> Option<Claims> {
    let mut claim = |name| match said.remove(name) {
        None => Some(Claim::default()),
        Some(value) => serde_json::from_value::<Claim>(value)
            .ok()
            .filter(|claim| text_fits(claim.reason.as_deref()))
            .map(|claim| Claim { source: claim.source.map(as_derived), ..claim }),
    };
    let mut claims = Claims {
        gpu_attested: claim("gpu_attested")?,
        model_weights_provenance: claim("model_weights_provenance")?,
        os_known_good: claim("os_known_good")?,
        serving_software_known_good: claim("serving_software_known_good")?,
        tcb_up_to_date: claim("tcb_up_to_date")?,
        tee_attested: claim("tee_attested")?,
        ..Claims::default()
    };
    let nested = match said.remove("extra") {
        None => Map::new(),
        Some(Value::Object(nested)) => nested,
        Some(_) => return None,
    };
    for (name, value) in said.into_iter().chain(nested).filter(|(_, value)| !value.is_null()) {
        let is_name =
            (1..=MAX_FACT_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        let fact = fact(value).filter(|_| is_name && claims.extra.len() < MAX_FACTS)?;
        claims.extra.insert(name, fact);
    }
    Some(claims)
}

/// Hardware proves to who looks at its evidence, and that was the program.
const fn as_derived(source: ClaimSource) -> ClaimSource {
    match source {
        ClaimSource::HardwareProven => ClaimSource::VerifierDerived,
        other => other,
    }
}

fn fact(value: Value) -> Option<Fact> {
    const EXACT: u64 = 1 << 53;
    let fact = match value {
        Value::Bool(flag) => Fact::Flag(flag),
        Value::Number(number) => match number.as_u64().filter(|integer| *integer <= EXACT) {
            Some(integer) => Fact::Number(integer),
            None => Fact::Text(number.to_string()),
        },
        Value::String(text) => Fact::Text(text),
        other => Fact::Text(other.to_string()),
    };
    match &fact {
        Fact::Text(text) if !text_fits(Some(text)) => None,
        _ => Some(fact),
    }
}

fn text_fits(text: Option<&str>) -> bool {
    text.is_none_or(|text| text.chars().count() <= MAX_FACT_TEXT)
}

/// What the program saw, in the form of sessions or in one of its own; without it, its whole answer.
fn evidence(shown: Option<&Value>, answer: &[u8]) -> Option<Evidence> {
    match shown {
        None | Some(Value::Null) => Some(Evidence::new("application/json", answer)),
        Some(shown) => match Evidence::deserialize(shown) {
            Ok(evidence) => evidence.bytes().is_some().then_some(evidence),
            Err(_) => Some(Evidence::new("application/json", shown.to_string().as_bytes())),
        },
    }
}
