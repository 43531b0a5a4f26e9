//! The configuration's file, and upstreams that replaced those of the file.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::config::{ConfigError, GatewayConfig};
use crate::gateway::{Gateway, Live};

/// Largest file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// File in the directory for state that keeps replaced upstreams.
const REPLACED_FILE: &str = "upstreams.json";
const UPSTREAMS: &str = "upstreams";
/// Members of an upstream that nobody is shown.
const SECRETS: [&str; 2] = ["bearer_token", "verifier_options"];
/// Members of an upstream that only the file may say: who has the operator's token must not run programs beside the
/// keys, tell those of the file something else, or name files.
const OF_THE_FILE: [&str; 4] = ["ca_file", "verifier_command", "verifier_options", "verifier_scope"];

/// Why a configuration does not take effect.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file cannot be read.
    #[error("{0} cannot be read")]
    Unreadable(PathBuf, #[source] io::Error),
    /// Upstreams cannot be kept.
    #[error("{0} cannot be written")]
    Unwritable(PathBuf, #[source] io::Error),
    /// It breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Upstreams are no list, or not one that every reader understands alike.
    #[error("upstreams: {0}")]
    Upstreams(&'static str),
    /// An upstream cannot be spoken with.
    #[error(transparent)]
    Upstream(#[from] crate::upstream::UpstreamError),
}

/// The operator's file. Upstreams may be replaced at run time; that holds, also after a restart, until the upstreams
/// in the file are changed.
#[derive(Debug)]
pub struct Settings {
    file: PathBuf,
    held: Mutex<Held>,
}

/// What holds now.
#[derive(Debug)]
struct Held {
    /// The file's bytes.
    text: Vec<u8>,
    /// The upstreams that hold.
    upstreams: Value,
}

/// Upstreams that replaced those of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    /// Digest of those in the file.
    replaces: String,
    upstreams: Value,
}

impl Settings {
    /// Reads the file, and what replaced its upstreams.
    pub fn load(file: &Path) -> Result<(Self, GatewayConfig), SettingsError> {
        let text = read(file)?;
        let (config, upstreams) = effective(&text)?;
        Ok((Self { file: file.to_owned(), held: Mutex::new(Held { text, upstreams }) }, config))
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the file again. Whether anything is different now; if so, it holds.
    pub async fn reload(&self, gateway: &Gateway) -> Result<bool, SettingsError> {
        let mut held = self.held.lock().await;
        let text = read(&self.file)?;
        if text == held.text {
            return Ok(false);
        }
        let (config, upstreams) = effective(&text)?;
        gateway.replace(Live::new(config, Some(&gateway.live()))?);
        *held = Held { text, upstreams };
        Ok(true)
    }

    /// Other upstreams, a JSON array: checked together with everything else, kept, and then in force at once. One that
    /// runs a program or names a file has to do so in the words of the upstream with its name in the file.
    pub async fn replace_upstreams(&self, gateway: &Gateway, list: &[u8]) -> Result<(), SettingsError> {
        let mut held = self.held.lock().await;
        let upstreams = cloister_aci::parse(list)
            .map_err(|_| SettingsError::Upstreams("have to be JSON, each member once"))?;
        if !upstreams.is_array() {
            return Err(SettingsError::Upstreams("have to be an array"));
        }
        let config = with_upstreams(&held.text, &upstreams)?;
        let replaces = digest(&upstreams_of(&held.text)?)?;
        digest(&upstreams)?;
        let path = config.state_dir.join(REPLACED_FILE);
        let live = Live::new(config, Some(&gateway.live()))?;
        let kept = Replaced { replaces, upstreams };
        let bytes = serde_json::to_vec(&kept).unwrap_or_default();
        let written = path.clone();
        tokio::task::spawn_blocking(move || write(&written, &bytes))
            .await
            .map_err(io::Error::other)
            .and_then(|written| written)
            .map_err(|error| SettingsError::Unwritable(path, error))?;
        gateway.replace(live);
        held.upstreams = kept.upstreams;
        Ok(())
    }

    /// The upstreams that hold, without their secrets.
    pub async fn view(&self) -> Value {
        let held = self.held.lock().await;
        let shown: Vec<Value> = held.upstreams.as_array().into_iter().flatten().map(redacted).collect();
        json!({ "config_digest": digest(&held.upstreams).unwrap_or_default(), UPSTREAMS: shown })
    }
}

fn redacted(upstream: &Value) -> Value {
    let mut upstream = upstream.as_object().cloned().unwrap_or_default();
    for secret in SECRETS {
        let is_there = upstream.shift_remove(secret).is_some_and(|value| !is_default(&value));
        upstream.insert(format!("{secret}_configured"), Value::Bool(is_there));
    }
    Value::Object(upstream)
}

/// The configuration of a file, with the upstreams that replaced its own if they are still those that were replaced.
fn effective(text: &[u8]) -> Result<(GatewayConfig, Value), SettingsError> {
    let config = GatewayConfig::parse(text)?;
    let own = upstreams_of(text)?;
    let path = config.state_dir.join(REPLACED_FILE);
    if !path.exists() {
        return Ok((config, own));
    }
    let malformed = |_| SettingsError::Unreadable(path.clone(), io::ErrorKind::InvalidData.into());
    let replaced: Replaced = serde_json::from_slice(&read(&path)?).map_err(malformed)?;
    if replaced.replaces != digest(&own)? {
        tracing::warn!("the upstreams in the file were changed: those that replaced them are given up");
        std::fs::remove_file(&path).map_err(|error| SettingsError::Unwritable(path, error))?;
        return Ok((config, own));
    }
    Ok((with_upstreams(text, &replaced.upstreams)?, replaced.upstreams))
}

fn members_of(text: &[u8]) -> Result<Map<String, Value>, SettingsError> {
    let malformed = |_| SettingsError::Config(ConfigError::Malformed("not JSON".to_owned()));
    serde_json::from_slice(text).map_err(malformed)
}

fn upstreams_of(text: &[u8]) -> Result<Value, SettingsError> {
    Ok(members_of(text)?.shift_remove(UPSTREAMS).unwrap_or_default())
}

fn with_upstreams(text: &[u8], upstreams: &Value) -> Result<GatewayConfig, SettingsError> {
    let mut members = members_of(text)?;
    check_members(upstreams, members.get(UPSTREAMS))?;
    members.insert(UPSTREAMS.to_owned(), upstreams.clone());
    Ok(GatewayConfig::parse(&serde_json::to_vec(&members).unwrap_or_default())?)
}

/// Whether upstreams say nothing that only the file may say, or all of it as the file does.
fn check_members(upstreams: &Value, own: Option<&Value>) -> Result<(), SettingsError> {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let own = list(own);
    for (index, upstream) in list(Some(upstreams)).iter().enumerate() {
        let name = upstream.get("name");
        let of_file = own.iter().find(|own| name.is_some() && own.get("name") == name);
        let said = |upstream: Option<&Value>, member| {
            upstream.and_then(|upstream| upstream.get(member)).filter(|value| !is_default(value)).cloned()
        };
        let says_any = OF_THE_FILE.iter().any(|member| said(Some(upstream), *member).is_some());
        let different =
            OF_THE_FILE.iter().find(|member| said(Some(upstream), **member) != said(of_file, **member));
        if let Some(member) = different.filter(|_| says_any) {
            return Err(SettingsError::Config(ConfigError::Rule {
                at: format!("{UPSTREAMS}[{index}].{member}"),
                rule: "may only be what the file says for the upstream of this name".to_owned(),
            }));
        }
    }
    Ok(())
}

/// Whether a member says no more than if it were absent.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn digest(upstreams: &Value) -> Result<String, SettingsError> {
    let canonical = cloister_aci::canonical(upstreams)
        .map_err(|_| SettingsError::Upstreams("have a number that readers understand differently"))?;
    Ok(cloister_aci::sha256(&canonical))
}

fn read(path: &Path) -> Result<Vec<u8>, SettingsError> {
    let failed = |error| SettingsError::Unreadable(path.to_owned(), error);
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES) {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(bytes)
}

/// Replaces a file as a whole, readable by its owner only: the old one or the new one is there after a crash.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let new = path.with_extension("new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}
