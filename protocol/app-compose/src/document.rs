//! The app-compose document: what a tenant hands over, what is hashed and what a guest runs.

use serde_json::{Map, Value, json};

use crate::decode::{self, Decode, Fault, Reader, Source};
use crate::{ComposeFile, ComposeFileError, ComposeHash, canonical, members};

/// Most bytes of the program (compose file or bash script) and the pre-launch script together.
pub const MAX_COMBINED_BYTES: usize = 204_800;
/// Longest name of an environment variable in bytes.
pub const MAX_ENV_NAME_BYTES: usize = 256;

/// What runs the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// `docker_compose_file` by a compose engine.
    DockerCompose,
    /// `bash_script` by bash.
    Bash,
}

impl std::str::FromStr for Runner {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "docker-compose" => Ok(Self::DockerCompose),
            "bash" => Ok(Self::Bash),
            _ => Err("runner must be docker-compose or bash"),
        }
    }
}

/// File system of the data disk; cannot change after creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFs {
    /// `ext4`
    Ext4,
    /// `zfs`
    Zfs,
}

impl StorageFs {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Zfs => "zfs",
        }
    }
}

impl std::str::FromStr for StorageFs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Ext4, Self::Zfs]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or("storage_fs must be ext4 or zfs")
    }
}

impl Decode for Runner {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        decode::parsed(value, reader)
    }
}

impl Decode for StorageFs {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        decode::parsed(value, reader)
    }
}

members! {
    /// The members that mean something to guests. What an absent one means is the guest platform's rule;
    /// [`Draft::prepare`] writes the service's own defaults into the document instead of relying on it.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Members {
        /// Name of the application; may be empty.
        pub name: String,
        /// Version of the document's rules: 1 or 2.
        pub manifest_version: i64,
        /// What runs the application.
        pub runner: Runner,
        /// Compose file, for [`Runner::DockerCompose`].
        pub docker_compose_file: Option<String>,
        /// Script, for [`Runner::Bash`].
        pub bash_script: Option<String>,
        /// Script that runs on every boot before the container engine starts.
        pub init_script: Option<String>,
        /// Script that runs right before the application starts.
        pub pre_launch_script: Option<String>,
        /// Names that may be taken from the sealed environment.
        pub allowed_envs: Vec<String> = Vec::new(),
        /// Legacy feature names.
        pub features: Vec<String> = Vec::new(),
        /// Keys come from a key management service.
        pub kms_enabled: bool = false,
        /// The ingress routes to the application.
        pub gateway_enabled["tproxy_enabled"]: bool = false,
        /// Keys come from the host's sealing provider.
        pub local_key_provider_enabled: bool = false,
        /// The CVM has no identity of its own among those of its application.
        pub no_instance_id: bool = false,
        /// Logs are served to anybody.
        pub public_logs: bool = false,
        /// System figures are served to anybody.
        pub public_sysinfo: bool = false,
        /// Measurements are served to anybody.
        pub public_tcbinfo: bool = true,
        /// The boot waits for a synchronised clock.
        pub secure_time: bool = true,
        /// File system of the data disk.
        pub storage_fs: StorageFs = StorageFs::Zfs,
        /// Domain that the guest uses for its own links.
        pub default_gateway_domain: Option<String>,
        /// Makes otherwise equal documents differ.
        pub salt: Option<String>,
    }
}

/// A document that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// Not JSON at all.
    #[error("the app-compose document is not JSON: {0}")]
    NotJson(String),
    /// Members that are absent or of a wrong type.
    #[error("the app-compose document has wrong members: {}", describe(.0))]
    Members(Vec<Fault>),
    /// The runner's program is absent or blank.
    #[error("{0} is missing or empty")]
    MissingProgram(&'static str),
    /// The program and the pre-launch script are too long together.
    #[error(
        "the compose file and the pre-launch script have {0} bytes together, more than the {MAX_COMBINED_BYTES} allowed"
    )]
    TooLarge(usize),
    /// Rules that this version does not know.
    #[error("manifest_version {0} is not supported; use 2")]
    ManifestVersion(i64),
    /// Not the name of an environment variable.
    #[error("allowed_envs: {0:?} is not the name of an environment variable")]
    EnvName(String),
    /// The compose file is not one.
    #[error("docker_compose_file: {0}")]
    ComposeFile(ComposeFileError),
}

fn describe(faults: &[Fault]) -> String {
    let words: Vec<_> =
        faults.iter().map(|fault| format!("{}: {}", fault.loc.join("."), fault.msg)).collect();
    words.join("; ")
}

/// A document whose bytes are final: these are hashed, stored, handed to the guest and measured.
#[derive(Debug, Clone, PartialEq)]
pub struct AppCompose {
    bytes: Vec<u8>,
    document: Map<String, Value>,
    members: Members,
}

impl AppCompose {
    /// Reads final bytes; they are kept as they are.
    pub fn parse(bytes: &[u8]) -> Result<Self, ComposeError> {
        let value: Value =
            serde_json::from_slice(bytes).map_err(|error| ComposeError::NotJson(error.to_string()))?;
        let members: Members = decode::decode(&value, Source::Json, &[]).map_err(ComposeError::Members)?;
        let document = value.as_object().cloned().unwrap_or_default();
        Ok(Self { bytes: bytes.to_vec(), document, members })
    }

    /// The final bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Hash of the final bytes.
    #[must_use]
    pub fn compose_hash(&self) -> ComposeHash {
        ComposeHash::of(&self.bytes)
    }

    /// Every member, also those that nobody here knows.
    #[must_use]
    pub const fn document(&self) -> &Map<String, Value> {
        &self.document
    }

    /// The members that mean something to guests.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// What the runner runs.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        self.members.program().1
    }

    /// The same document with other values of some members; null removes one. All others stay, also those
    /// that nobody here knows. Its bytes are canonical, or these very ones when nothing changes.
    pub fn with(
        &self,
        changes: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Result<Self, ComposeError> {
        let mut document = self.document.clone();
        for (member, value) in changes {
            match value {
                Value::Null => document.remove(member),
                value => document.insert(member.to_owned(), value),
            };
        }
        drop_unused(&mut document);
        if document == self.document {
            return Ok(self.clone());
        }
        Self::checked(&canonical::compact(&Value::Object(document)))
    }

    /// Reads final bytes that must also be fit to run.
    fn checked(bytes: &[u8]) -> Result<Self, ComposeError> {
        let compose = Self::parse(bytes)?;
        compose.members.check()?;
        Ok(compose)
    }
}

impl Members {
    fn program(&self) -> (&'static str, Option<&str>) {
        match self.runner {
            Runner::DockerCompose => ("docker_compose_file", self.docker_compose_file.as_deref()),
            Runner::Bash => ("bash_script", self.bash_script.as_deref()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ComposeError> {
        if !(1..=2).contains(&self.manifest_version) {
            return Err(ComposeError::ManifestVersion(self.manifest_version));
        }
        let (member, program) = self.program();
        let program =
            program.filter(|text| !text.trim().is_empty()).ok_or(ComposeError::MissingProgram(member))?;
        let bytes = program.len() + self.pre_launch_script.as_deref().map_or(0, str::len);
        if bytes > MAX_COMBINED_BYTES {
            return Err(ComposeError::TooLarge(bytes));
        }
        if let Some(name) = self.allowed_envs.iter().find(|name| !is_env_name(name)) {
            return Err(ComposeError::EnvName(name.chars().take(MAX_ENV_NAME_BYTES).collect()));
        }
        if self.runner == Runner::DockerCompose {
            ComposeFile::parse(program).map_err(ComposeError::ComposeFile)?;
        }
        Ok(())
    }
}

/// Whether a text can name an environment variable.
#[must_use]
pub fn is_env_name(name: &str) -> bool {
    (1..=MAX_ENV_NAME_BYTES).contains(&name.len())
        && !name.contains(|c: char| c == '=' || c == '\0' || c.is_whitespace())
}

/// A document as a tenant sends it: its members have the right types, its bytes are not final.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft(Map<String, Value>);

/// What the surrounding request adds to a draft; the document's own members win.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Additions<'a> {
    /// Used when the document's name is empty.
    pub name: &'a str,
    /// More names for `allowed_envs`.
    pub env_keys: &'a [String],
    /// Used when the document does not say.
    pub secure_time: Option<bool>,
    /// Used when the document does not say.
    pub storage_fs: Option<StorageFs>,
}

impl Decode for Draft {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        let draft = Self(decode::object(value, reader)?.clone());
        // A draft may leave out what the service fills in, so the filled document is what is checked.
        Members::decode(&Value::Object(draft.filled(&Additions::default())), reader)?;
        Some(draft)
    }
}

impl Draft {
    /// Fills in the service's defaults, drops what the runner does not use, fixes the bytes and checks
    /// the result.
    pub fn prepare(&self, additions: &Additions<'_>) -> Result<AppCompose, ComposeError> {
        AppCompose::checked(&canonical::compact(&Value::Object(self.filled(additions))))
    }

    /// The document in the form whose hash the tenant computed: as it was sent or with the service's
    /// defaults, compact or indented. `None` when no form has that hash. The indented form also loses spaces
    /// inside of values ([`canonical::indented`]); what has the hash is what runs.
    pub fn with_hash(
        &self,
        hash: ComposeHash,
        additions: &Additions<'_>,
    ) -> Result<Option<AppCompose>, ComposeError> {
        let mut sent = self.0.clone();
        drop_unused(&mut sent);
        let documents = [Value::Object(sent), Value::Object(self.filled(additions))];
        let forms: [fn(&Value) -> Vec<u8>; 2] = [canonical::compact, canonical::indented];
        let mut candidates = documents.iter().flat_map(|document| forms.map(|form| form(document)));
        let bytes = candidates.find(|bytes| ComposeHash::of(bytes) == hash);
        bytes.map(|bytes| AppCompose::checked(&bytes)).transpose()
    }

    fn filled(&self, additions: &Additions<'_>) -> Map<String, Value> {
        let mut document = self.0.clone();
        document.retain(|_, value| !value.is_null());
        if let Some(tproxy) = document.get("tproxy_enabled").cloned() {
            // Guests join the two names by OR, so they must agree; the newer one wins.
            let gateway = document.entry("gateway_enabled").or_insert(tproxy).clone();
            document.insert("tproxy_enabled".into(), gateway);
        }
        if document.get("name").and_then(Value::as_str) == Some("") {
            document.insert("name".into(), additions.name.into());
        }
        if let Some(secure_time) = additions.secure_time {
            document.entry("secure_time").or_insert(secure_time.into());
        }
        if let Some(storage_fs) = additions.storage_fs {
            document.entry("storage_fs").or_insert(storage_fs.as_str().into());
        }
        for (member, default) in service_defaults() {
            document.entry(member).or_insert(default);
        }
        if let Some(Value::Array(names)) = document.get_mut("allowed_envs") {
            for key in additions.env_keys {
                let key = Value::from(key.as_str());
                if !names.contains(&key) {
                    names.push(key);
                }
            }
        }
        drop_unused(&mut document);
        document
    }
}

/// Takes out what is never hashed: the program of the other runner, and a script that is empty.
fn drop_unused(document: &mut Map<String, Value>) {
    let unused = match document.get("runner").and_then(Value::as_str) {
        Some("bash") => "docker_compose_file",
        _ => "bash_script",
    };
    document.remove(unused);
    if document.get("pre_launch_script").is_some_and(|script| script.is_null() || script == "") {
        document.remove("pre_launch_script");
    }
}

/// What the service writes for absent members. The features are fixed texts of the public interface.
fn service_defaults() -> [(&'static str, Value); 13] {
    [
        ("manifest_version", json!(2)),
        ("runner", json!("docker-compose")),
        ("allowed_envs", json!([])),
        ("features", json!(["kms", "tproxy-net"])),
        ("kms_enabled", json!(true)),
        ("gateway_enabled", json!(true)),
        ("local_key_provider_enabled", json!(false)),
        ("no_instance_id", json!(false)),
        ("public_logs", json!(true)),
        ("public_sysinfo", json!(true)),
        ("public_tcbinfo", json!(true)),
        ("secure_time", json!(false)),
        ("storage_fs", json!("zfs")),
    ]
}

#[cfg(test)]
mod tests;
