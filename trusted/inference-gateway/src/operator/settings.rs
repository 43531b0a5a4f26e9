//! The configuration's file, and lists that replaced those of the file.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::lists::{self, List, Replaced};
use crate::config::{ConfigError, GatewayConfig};
use crate::gateway::{Gateway, Live};

/// Largest file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Why a configuration does not take effect.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file cannot be read.
    #[error("{0} cannot be read")]
    Unreadable(PathBuf, #[source] io::Error),
    /// A list cannot be kept.
    #[error("{0} cannot be written")]
    Unwritable(PathBuf, #[source] io::Error),
    /// It breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What should replace a list is none, or not one that every reader understands alike.
    #[error("{list}: {rule}")]
    List {
        /// The list.
        list: &'static str,
        /// What has to hold.
        rule: &'static str,
    },
    /// The file has `control` instead of `keys`, or the other way round: requests under way belong to who admitted them.
    #[error("control and keys cannot take each other's place without a restart")]
    Restart,
    /// A file is no configuration.
    #[error("{0}")]
    File(PathBuf, #[source] ConfigError),
    /// The file breaks a rule together with what replaced lists of it.
    #[error(
        "the file does not go with what the operator's token replaced; without {} its own lists hold again",
        files(.replaced)
    )]
    Replacement {
        /// Files with what replaced lists.
        replaced: Vec<PathBuf>,
        /// The rule.
        source: Box<Self>,
    },
    /// An upstream cannot be spoken with.
    #[error(transparent)]
    Upstream(#[from] crate::upstream::UpstreamError),
}

fn files(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The operator's file. Its lists may be replaced at run time; that holds, also after a restart, until the list in the
/// file is changed.
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
    /// Its members, with the lists that replaced some.
    members: Map<String, Value>,
    /// Files with what replaced lists that the file has no more; there until the file's lists hold.
    given_up: Vec<PathBuf>,
    /// Files with what holds instead of lists of the file, until that was told.
    replaced: Vec<PathBuf>,
    /// Members of the file that hold from the next start on.
    waiting: Vec<&'static str>,
}

/// What came of a look at the file.
#[derive(Debug)]
pub struct Reloaded {
    /// Whether it is another one.
    pub is_other: bool,
    /// Its members that hold from the next start on.
    pub waiting: Vec<&'static str>,
}

/// What a file says together with what is kept.
struct Effective {
    config: GatewayConfig,
    members: Map<String, Value>,
    /// Files with what replaced a list of the file that has become another one since.
    given_up: Vec<PathBuf>,
    /// Files with what holds instead of lists of the file.
    replaced: Vec<PathBuf>,
    waiting: Vec<&'static str>,
}

impl Settings {
    /// Reads the file, and what replaced its lists.
    pub fn load(file: &Path) -> Result<(Self, GatewayConfig), SettingsError> {
        let text = read(file)?;
        let Effective { config, members, given_up, replaced, waiting } = effective(file, &text, None)?;
        let held = Mutex::new(Held { text, members, given_up, replaced, waiting });
        Ok((Self { file: file.to_owned(), held }, config))
    }

    /// What was loaded holds: what replaced former lists of the file is of no use any more.
    pub async fn hold(&self) {
        let mut held = self.held.lock().await;
        tell(std::mem::take(&mut held.replaced));
        give_up(std::mem::take(&mut held.given_up));
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the file again, and by `prepare` what else its configuration needs. If all of that is of use, it holds, but for
    /// what has to wait for a start, and what was prepared is given back.
    pub async fn reload<T, E: From<SettingsError>>(
        &self,
        gateway: &Gateway,
        prepare: impl FnOnce(&GatewayConfig) -> Result<T, E>,
    ) -> Result<(Reloaded, T), E> {
        let mut held = self.held.lock().await;
        let text = read(&self.file)?;
        if text == held.text {
            let reloaded = Reloaded { is_other: false, waiting: held.waiting.clone() };
            return Ok((reloaded, prepare(&gateway.live().config)?));
        }
        let before = gateway.live();
        let Effective { config, members, given_up, replaced, waiting } =
            effective(&self.file, &text, Some(&before.config))?;
        let prepared = prepare(&config)?;
        let live = Live::new(config, Some(&before)).map_err(SettingsError::from)?;
        gateway.replace(live);
        tell(replaced);
        give_up(given_up);
        let reloaded = Reloaded { is_other: true, waiting: waiting.clone() };
        *held = Held { text, members, given_up: Vec::new(), replaced: Vec::new(), waiting };
        Ok((reloaded, prepared))
    }

    /// Another list, a JSON array: checked together with everything else, kept, and then in force at once. What of an
    /// entry only the file may say has to be in the words of the entry with its name in the file.
    pub async fn replace(
        &self,
        gateway: &Gateway,
        list: &'static List,
        text: &[u8],
    ) -> Result<(), SettingsError> {
        let mut held = self.held.lock().await;
        let new = cloister_aci::parse(text).map_err(|_| list.refused("have to be JSON, each member once"))?;
        if !new.is_array() {
            return Err(list.refused("have to be an array"));
        }
        let new = list.with_secrets(new, list.of(&held.members))?;
        let own = members_of(&held.text)?;
        list.check(&new, list.of(&own))?;
        // Whoever reads what is kept has to understand it.
        list.digest(&new)?;
        let mut members = held.members.clone();
        members.insert(list.member.to_owned(), new.clone());
        let (config, _) = config_of(&members)?.beside(&gateway.live().config)?;
        let path = config.state_dir.join(list.file_name());
        let live = Live::new(config, Some(&gateway.live()))?;
        let kept = Replaced { replaces: list.digest(list.of(&own))?, list: new };
        let bytes = kept.to_bytes(list);
        if is_too_large(&bytes) {
            return Err(list.refused("may have 4 MiB together"));
        }
        let written = path.clone();
        tokio::task::spawn_blocking(move || write(&written, &bytes))
            .await
            .map_err(io::Error::other)
            .and_then(|written| written)
            .map_err(|error| SettingsError::Unwritable(path, error))?;
        gateway.replace(live);
        held.members = members;
        remark(&gateway.live().config);
        tracing::info!("other {} hold, by the operator's token", list.member);
        Ok(())
    }

    /// A list that holds, without its secrets, with its digest.
    pub async fn view(&self, list: &List) -> Value {
        let held = self.held.lock().await;
        let found = list.of(&held.members);
        json!({ "config_digest": list.digest(found).unwrap_or_default(), list.member: list.redacted(found) })
    }
}

/// The configuration of a file, with each list that replaced its own if that is still the one that was replaced; beside the
/// configuration that holds, as far as it can hold there.
fn effective(file: &Path, text: &[u8], held: Option<&GatewayConfig>) -> Result<Effective, SettingsError> {
    let of_file = |error| SettingsError::File(file.to_owned(), error);
    let beside = |config: GatewayConfig| match held {
        Some(held) => config.beside(held),
        None => Ok((config, Vec::new())),
    };
    let config = GatewayConfig::parse(text).map_err(of_file)?;
    if held.is_some_and(|held| held.control.is_some() != config.control.is_some()) {
        return Err(SettingsError::Restart);
    }
    let (config, waiting) = beside(config).map_err(of_file)?;
    let own = members_of(text)?;
    let (mut members, mut replaced, mut given_up) = (own.clone(), Vec::new(), Vec::new());
    for list in lists::ALL {
        let path = config.state_dir.join(list.file_name());
        if !path.exists() {
            continue;
        }
        let malformed = || SettingsError::Unreadable(path.clone(), io::ErrorKind::InvalidData.into());
        let kept = Replaced::parse(list, &read(&path)?).ok_or_else(malformed)?;
        if kept.replaces != list.digest(list.of(&own))? {
            given_up.push(path);
            continue;
        }
        members.insert(list.member.to_owned(), kept.list);
        replaced.push(path);
    }
    if replaced.is_empty() {
        return Ok(Effective { config, members, given_up, replaced, waiting });
    }
    let check = |list: &&List| list.check(list.of(&members), list.of(&own));
    let config = lists::ALL.iter().try_for_each(check).and_then(|()| config_of(&members));
    let config = config.and_then(|config| Ok(beside(config)?.0));
    let config = config.map_err(|source| SettingsError::Replacement {
        replaced: replaced.clone(),
        source: Box::new(source),
    })?;
    Ok(Effective { config, members, given_up, replaced, waiting })
}

/// Tells the operator what is seldom meant.
pub fn remark(config: &GatewayConfig) {
    for remark in config.remarks() {
        tracing::warn!("{remark}");
    }
}

/// Tells the operator what holds instead of lists of the file.
fn tell(replaced: Vec<PathBuf>) {
    for path in replaced {
        tracing::info!(path = %path.display(), "holds instead of the file's list");
    }
}

fn members_of(text: &[u8]) -> Result<Map<String, Value>, SettingsError> {
    let malformed =
        |_| ConfigError::Rule { at: "the configuration".to_owned(), rule: "has to be JSON".to_owned() };
    Ok(serde_json::from_slice(text).map_err(malformed)?)
}

fn config_of(members: &Map<String, Value>) -> Result<GatewayConfig, SettingsError> {
    let text = serde_json::to_vec(members).unwrap_or_default();
    // Nobody has seen this text.
    Ok(GatewayConfig::parse(&text).map_err(ConfigError::without_place)?)
}

/// One that stays is given up again at the next start.
fn give_up(paths: Vec<PathBuf>) {
    for path in paths {
        tracing::warn!(path = %path.display(), "the list was changed in the file: what replaced it is given up");
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::error!(%error, path = %path.display(), "is of no use any more, and cannot be removed");
        }
    }
}

fn is_too_large(bytes: &[u8]) -> bool {
    u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES)
}

fn read(path: &Path) -> Result<Vec<u8>, SettingsError> {
    let failed = |error| SettingsError::Unreadable(path.to_owned(), error);
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if is_too_large(&bytes) {
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
