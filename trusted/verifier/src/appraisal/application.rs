//! What runs on the machine: compose document, identities, image, keys.

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use cloister_evidence::{
    AttestationDocument, ExpectedConfig, KeyProvider, KeyProviderKind, Measurement, MrConfigIdError,
    check_mr_config_id,
};
use serde::Deserialize;
use serde_json::Value;

use super::boot::Booted;
use super::claim::{Claim, ClaimId, Outcome};
use super::events::{ProvenEvents, readable};
use super::input::ExpectedCompose;
use super::quote::ProvenQuote;

/// Most events of the application that are listed.
const MAX_LISTED: usize = 64;
/// The runner that runs a compose file; others leave one in the document aside.
const COMPOSE_RUNNER: &str = "docker-compose";

/// What the claims of this file rest on.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    pub(super) quote: &'a ProvenQuote<'a>,
    pub(super) events: &'a ProvenEvents,
    /// The boot; without a known one, the events are the words of unknown software.
    pub(super) booted: Option<Booted>,
}

impl Ground<'_> {
    /// A claim that holds only if the software that measured the events is known.
    fn settle(&self, mut claim: Claim) -> Claim {
        if self.booted.is_none() && claim.outcome == Outcome::Holds {
            claim.outcome = Outcome::NotChecked;
            claim.sentence = format!("By software that is not known to be trustworthy: {}", claim.sentence);
        }
        claim
    }

    fn id<const N: usize>(&self, event: &str) -> Result<[u8; N], String> {
        let payload =
            self.events.platform(event).ok_or_else(|| format!("The machine measured no {event}."))?;
        payload.try_into().map_err(|_| format!("The event {event} does not have {N} bytes."))
    }

    /// Hash of the compose document that was measured.
    pub(super) fn compose_hash(&self) -> Result<ComposeHash, String> {
        self.id("compose-hash").map(ComposeHash::from_bytes)
    }

    /// Application that was measured.
    pub(super) fn app_id(&self) -> Result<AppId, String> {
        self.id("app-id").map(AppId::from_bytes)
    }

    /// CVM that was measured, when it has an identity.
    pub(super) fn instance_id(&self) -> Option<InstanceId> {
        self.id("instance-id").ok().map(InstanceId::from_bytes)
    }

    /// Image, when something that was verified names it.
    pub(super) fn os_image_hash(&self) -> Option<OsImageHash> {
        match self.booted? {
            Booted::Image(hash) => Some(hash),
            Booted::Expected => self.id("os-image-hash").ok().map(OsImageHash::from_bytes),
        }
    }
}

/// A claim about which nothing can be said, because the events are not known to be the machine's.
pub(super) fn groundless(id: ClaimId) -> Claim {
    Claim::not_checked(id, "What the machine measured is unknown without a valid quote and event log.")
}

/// Judges the compose document.
pub(super) fn compose(
    ground: &Ground<'_>,
    document: &AttestationDocument,
    expected: Option<&ExpectedCompose>,
) -> Claim {
    let id = ClaimId::Compose;
    let claim = match ground.compose_hash() {
        Ok(measured) => compare_compose(ground, measured, document.app_compose.as_deref(), expected),
        Err(reason) => Claim::fails(id, reason),
    };
    ground.settle(claim)
}

fn compare_compose(
    ground: &Ground<'_>,
    measured: ComposeHash,
    text: Option<&str>,
    expected: Option<&ExpectedCompose>,
) -> Claim {
    let id = ClaimId::Compose;
    let fails = |sentence: &str| Claim::fails(id, sentence).fact("measured", measured);
    if let Some(shown) = text.map(|text| ComposeHash::of(text.as_bytes())).filter(|shown| *shown != measured)
    {
        return fails("The compose document that is shown is not the one that was measured.")
            .fact("shown", shown);
    }
    let bound = match launch_binding(ground, measured) {
        Ok(bound) => bound,
        Err(reason) => {
            return fails(&format!(
                "The machine was launched for something else than it measured: {reason}."
            ))
            .fact("MRCONFIGID", ground.quote.verified.mr_config_id);
        }
    };
    let claim = match (expected, text) {
        (None, Some(_)) => Claim::holds(
            id,
            "The compose document that is shown is the one that runs. No other one was given to compare it with.",
        ),
        (None, None) => Claim::not_checked(
            id,
            "The compose document is not shown, and no expected one was given: its hash is reported, not compared.",
        ),
        (Some(ExpectedCompose::Hash(hash)), _) => compare_hash(*hash, measured),
        (Some(ExpectedCompose::Document(bytes)), _) => compare_hash(ComposeHash::of(bytes), measured),
        (Some(ExpectedCompose::ComposeFile(file)), Some(text)) => compare_file(file, text),
        (Some(ExpectedCompose::ComposeFile(_)), None) => Claim::not_checked(
            id,
            "The compose document is not shown, so the compose file cannot be looked for in it.",
        )
        .required(),
    };
    claim.fact("measured", measured).maybe("bound at launch (MRCONFIGID)", bound)
}

fn compare_hash(expected: ComposeHash, measured: ComposeHash) -> Claim {
    if expected == measured {
        return Claim::holds(ClaimId::Compose, "The expected compose document runs.")
            .fact("expected", expected);
    }
    Claim::fails(ClaimId::Compose, "Another compose document runs than the expected one.")
        .fact("expected", expected)
}

/// What decides whether a compose file in a document runs. A member that occurs twice is an error: readers
/// differ in which one counts.
#[derive(Deserialize)]
struct Runs {
    runner: String,
    docker_compose_file: Option<String>,
    #[serde(default)]
    init_script: Value,
    #[serde(default)]
    pre_launch_script: Value,
}

/// Looks for a compose file in the document that was measured.
fn compare_file(file: &str, document: &str) -> Claim {
    let id = ClaimId::Compose;
    let Ok(runs) = serde_json::from_str::<Runs>(document) else {
        return Claim::fails(id, "The measured document does not say in one way what runs.");
    };
    if runs.runner != COMPOSE_RUNNER {
        return Claim::fails(id, "No compose file runs: the measured document names another runner.")
            .fact("runner", readable(runs.runner.as_bytes()));
    }
    if runs.docker_compose_file.as_deref() != Some(file) {
        return Claim::fails(id, "Another compose file runs than the expected one.");
    }
    let is_empty = |script: &Value| script.is_null() || script.as_str() == Some("");
    let script = if is_empty(&runs.init_script) && is_empty(&runs.pre_launch_script) {
        "no script runs before it"
    } else {
        "A SCRIPT RUNS BEFORE IT"
    };
    let sentence = format!(
        "The expected compose file runs, and {script}. The other members of the measured document were not compared."
    );
    Claim::holds(id, sentence)
}

/// Whether the launch configuration of the machine names its compose document, in words, and why not if it
/// names another. Versions that cannot be judged from evidence alone are not.
fn launch_binding(
    ground: &Ground<'_>,
    measured: ComposeHash,
) -> Result<Option<&'static str>, MrConfigIdError> {
    let actual = &ground.quote.verified.mr_config_id;
    if *actual == Measurement::ZERO {
        return Ok(None);
    }
    let provider = ground.events.platform("key-provider");
    let provider = provider.and_then(|payload| serde_json::from_slice::<KeyProvider>(payload).ok());
    let provider_id = provider.as_ref().and_then(|of| hex::decode(&of.id).ok()).unwrap_or_default();
    let kind = provider.as_ref().and_then(|provider| KeyProviderKind::from_name(&provider.name));
    let app_id = ground.app_id().unwrap_or(AppId::from_bytes([0; 20]));
    let expected = ExpectedConfig {
        compose_hash: &measured,
        app_id: &app_id,
        key_provider: kind.map(|kind| (kind, provider_id.as_slice())),
        document: None,
    };
    match check_mr_config_id(actual, &expected) {
        Ok(()) => Ok(Some("yes")),
        Err(MrConfigIdError::Version(_) | MrConfigIdError::NoDocument) => {
            Ok(Some("in a form that is not judged"))
        }
        Err(error) => Err(error),
    }
}

/// Judges the application's identity.
pub(super) fn app_id(ground: &Ground<'_>, expected: Option<AppId>) -> Claim {
    let id = ClaimId::AppId;
    let measured = match ground.app_id() {
        Ok(measured) => measured,
        Err(reason) => return Claim::fails(id, reason),
    };
    let derived = ground.compose_hash().is_ok_and(|hash| AppId::from_compose_hash(&hash) == measured);
    let origin = if derived {
        "It follows from the compose document."
    } else {
        "The cloud assigned it: what runs under it is said by the compose hash alone."
    };
    let claim = match expected {
        Some(expected) if expected == measured => {
            Claim::holds(id, format!("The application is the expected one. {origin}"))
        }
        Some(expected) => {
            Claim::fails(id, "The application is not the expected one.").fact("expected", expected)
        }
        None => Claim::not_checked(id, format!("The application is reported, not compared. {origin}")),
    };
    ground.settle(claim.fact("measured", measured))
}

/// Judges the CVM's identity.
pub(super) fn instance_id(ground: &Ground<'_>, expected: Option<InstanceId>) -> Claim {
    let id = ClaimId::InstanceId;
    let measured = match ground.events.platform("instance-id") {
        None | Some([]) => None,
        Some(payload) => match payload.try_into() {
            Ok(bytes) => Some(InstanceId::from_bytes(bytes)),
            Err(_) => return Claim::fails(id, "The event instance-id does not have 20 bytes."),
        },
    };
    let claim = match (expected, measured) {
        (Some(expected), Some(measured)) if expected == measured => {
            Claim::holds(id, "The CVM is the expected one.")
        }
        (Some(expected), _) => {
            Claim::fails(id, "The CVM is not the expected one.").fact("expected", expected)
        }
        (None, Some(_)) => Claim::not_checked(id, "The CVM's identity is reported, not compared."),
        (None, None) => Claim::not_checked(id, "The CVM has no identity of its own."),
    };
    ground.settle(claim.maybe("measured", measured))
}

/// Judges the guest image.
pub(super) fn os_image(ground: &Ground<'_>, expected: Option<OsImageHash>) -> Claim {
    let id = ClaimId::OsImage;
    let Some(booted) = ground.booted else {
        return Claim::not_checked(id, "Which image was booted is unknown.").maybe("expected", expected);
    };
    let event = match ground.events.platform("os-image-hash").map(<[u8; 32]>::try_from) {
        None => None,
        Some(Ok(bytes)) => Some(OsImageHash::from_bytes(bytes)),
        Some(Err(_)) => return Claim::fails(id, "The event os-image-hash does not have 32 bytes."),
    };
    if let (Booted::Image(image), Some(event)) = (booted, event)
        && image != event
    {
        return Claim::fails(id, "The machine measured another image than it booted.")
            .fact("booted", image)
            .fact("measured", event);
    }
    let known = ground.os_image_hash();
    let claim = match (expected, known) {
        (Some(expected), Some(known)) if expected == known => {
            Claim::holds(id, "The guest image is the expected one.")
        }
        (Some(expected), Some(_)) => {
            Claim::fails(id, "The guest image is not the expected one.").fact("expected", expected)
        }
        (Some(expected), None) => Claim::not_checked(id, "Nothing that is verified names the guest image.")
            .fact("expected", expected)
            .required(),
        (None, Some(_)) => Claim::not_checked(
            id,
            "The guest image is reported, not compared: whether it is one to trust, the evidence cannot say.",
        ),
        (None, None) => {
            Claim::not_checked(id, "The registers of the boot were compared with expected ones instead.")
        }
    };
    claim.maybe("found", known)
}

/// Says where the application's keys come from.
pub(super) fn key_provider(ground: &Ground<'_>, expected: Option<&[u8]>) -> Claim {
    let id = ClaimId::KeyProvider;
    let required = |claim: Claim| if expected.is_some() { claim.required() } else { claim };
    let Some(payload) = ground.events.platform("key-provider") else {
        return required(Claim::not_checked(id, "The machine measured no provider of keys."));
    };
    let Ok(provider) = serde_json::from_slice::<KeyProvider>(payload) else {
        return Claim::fails(id, "What the machine measured as its provider of keys cannot be read.")
            .fact("measured", readable(payload));
    };
    let name = readable(provider.name.as_bytes());
    let claim = match expected {
        Some(expected) if hex::decode(&provider.id).is_ok_and(|id| id == expected) => {
            Claim::holds(id, format!("Keys come from the expected provider, {name}."))
        }
        Some(expected) => {
            Claim::fails(id, format!("Keys do not come from the expected provider, but from {name}."))
                .fact("expected", hex::encode(expected))
        }
        None if provider.name == "none" => Claim::holds(
            id,
            "There is no provider of keys: the application has none that outlive the machine.",
        ),
        None => Claim::not_checked(
            id,
            format!("Keys come from the provider {name}. Which one it is, is reported, not compared."),
        ),
    };
    let identity = (!provider.id.is_empty()).then_some(readable(provider.id.as_bytes()));
    ground.settle(claim.maybe("identity", identity))
}

/// Lists what the application measured.
pub(super) fn events(ground: &Ground<'_>) -> Claim {
    let id = ClaimId::ApplicationEvents;
    let sentence = match ground.events.application().len() {
        0 => "The application measured nothing.",
        // The digest joins name and payload by a colon: balance:5 and 6 could be balance and 5:6.
        _ if ground.events.application().any(|(name, _)| name.contains(':')) => {
            "These events are the application's own words: nothing of the platform vouches for what they say. \
             A name with a colon may end at it, and the rest be payload."
        }
        _ => {
            "These events are the application's own words: nothing of the platform vouches for what they say."
        }
    };
    let listed = ground.events.application().take(MAX_LISTED);
    let claim =
        listed.fold(Claim::holds(id, sentence), |claim, (name, payload)| claim.fact(name, readable(payload)));
    ground.settle(claim)
}
