//! What a person wants to be different about a CVM.

use std::path::PathBuf;

use cloister_app_compose::{AppCompose, AppId, ComposeHash, Revision};
use cloister_chain::B256;
use cloister_management_api::v20260121::CvmInfoDetail;
use cloister_sealed_env::Environment;
use serde_json::{Map, Value, json};

use crate::api::{Client, read};
use crate::commands::chain::ChainOptions;
use crate::commands::deploy::{EnvArgs, Gibibytes, Mebibytes, names_kms, read_text, seal};
use crate::commands::follow::Goal;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// The service of the CVM's application, whatever it is called.
const OWN_KMS: &str = "phala";

/// Options that say what changes; everything else about the CVM stays as it is.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Changes")]
pub(crate) struct Wanted {
    /// Compose file that replaces the present one
    #[arg(short, long, value_name = "FILE")]
    compose: Option<PathBuf>,
    /// Bash script that replaces the present pre-launch script; an empty file removes it
    #[arg(long, value_name = "FILE")]
    pre_launch_script: Option<PathBuf>,
    /// Whether anybody who knows the app id may read the logs
    #[arg(long, value_name = "BOOL")]
    public_logs: Option<bool>,
    /// Whether anybody who knows the app id may read system figures
    #[arg(long, value_name = "BOOL")]
    public_sysinfo: Option<bool>,
    /// Guest image by name
    #[arg(long)]
    image: Option<String>,
    /// Virtual CPUs
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    vcpu: Option<u32>,
    /// Memory, in MiB or with a unit: 2048, 2048M or 2G
    #[arg(long, value_name = "SIZE")]
    memory: Option<Mebibytes>,
    /// Data disk in GiB, or with a unit; it only grows
    #[arg(long, value_name = "SIZE")]
    disk: Option<Gibibytes>,
    /// File with unmeasured configuration that the application can read
    #[arg(long, value_name = "FILE")]
    user_config: Option<PathBuf>,
    #[command(flatten)]
    environment: EnvArgs,
}

/// A CVM as it is and as it is wanted.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) cvm: CvmInfoDetail,
    pub(super) before: AppCompose,
    pub(super) after: AppCompose,
    pub(super) environment: Option<Environment>,
    /// Members of the request but for the sealed environment.
    pub(super) members: Map<String, Value>,
}

impl Wanted {
    /// Reads the files, and the CVM as it is, and composes what it will be.
    pub(crate) async fn plan(&self, client: &Client, cvm: &str) -> Result<Plan, Failure> {
        let environment = self.environment.read()?;
        let texts = Texts {
            compose: self.compose.as_deref().map(read_text).transpose()?,
            script: self.pre_launch_script.as_deref().map(read_text).transpose()?,
            user_config: self.user_config.as_deref().map(read_text).transpose()?,
        };
        let detail: CvmInfoDetail = read(&client.get(&["cvms", cvm], &[]).await?)?;
        let before = present(client, &detail).await?;
        let revision = Revision {
            docker_compose_file: texts.compose.clone(),
            pre_launch_script: texts.script.clone(),
            allowed_envs: environment.as_ref().and_then(|environment| names(&before, environment)),
            public_logs: self.public_logs,
            public_sysinfo: self.public_sysinfo,
            public_tcbinfo: None,
        };
        let after = before
            .revised(&revision)
            .map_err(|error| Failure::usage("the change cannot be used").caused_by(error))?;
        let members = self.members(&texts, &revision);
        Ok(Plan { cvm: detail, before, after, environment, members })
    }

    fn members(&self, texts: &Texts, revision: &Revision) -> Map<String, Value> {
        let members = [
            ("docker_compose_file", json!(texts.compose)),
            ("pre_launch_script", json!(texts.script)),
            ("allowed_envs", json!(revision.allowed_envs)),
            ("public_logs", json!(self.public_logs)),
            ("public_sysinfo", json!(self.public_sysinfo)),
            ("image", json!(self.image)),
            ("vcpu", json!(self.vcpu)),
            ("memory", json!(self.memory.map(|size| size.0))),
            ("disk_size", json!(self.disk.map(|size| size.0))),
            ("user_config", json!(texts.user_config)),
        ];
        let given = members.into_iter().filter(|(_, value)| !value.is_null());
        given.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

struct Texts {
    compose: Option<String>,
    script: Option<String>,
    user_config: Option<String>,
}

impl Plan {
    /// The members of the request. `chain` is where a contract may publish the root of the KMS; the environment is sealed only now, when everything else is known to be
    /// right.
    pub(crate) async fn request(
        &self,
        wanted: &Wanted,
        chain: &ChainOptions,
        client: &Client,
        session: &Session,
    ) -> Result<Map<String, Value>, Failure> {
        let mut members = self.members.clone();
        if let Some(environment) = &self.environment {
            let published = chain.published_root(self.cvm.info.kms_info.as_ref(), session).await?;
            let root = wanted.environment.root(published)?;
            let is_pinned = names_kms(self.after.document());
            let sealed = seal(environment, self.app_id()?, OWN_KMS, root, is_pinned, client, session).await?;
            members.insert("encrypted_env".to_owned(), json!(sealed));
        }
        Ok(members)
    }

    /// Where the CVM is once the change is made.
    pub(super) fn goal(&self) -> Goal {
        if self.cvm.info.status == "stopped" { Goal::Stopped } else { Goal::Running }
    }

    /// Whether anything would change.
    pub(crate) fn changes(&self) -> bool {
        self.environment.is_some() || !self.members.is_empty()
    }

    /// The CVM's application.
    pub(crate) fn app_id(&self) -> Result<AppId, Failure> {
        self.cvm.info.app_id.ok_or_else(|| Failure::usage("the CVM has no application"))
    }

    /// The device that the CVM runs on, if the server knows it.
    pub(crate) fn device(&self) -> Option<B256> {
        self.cvm.info.node_info.as_ref()?.device_id.as_ref()?.parse().ok()
    }

    /// Hash of the document that the CVM has, as the server says.
    pub(crate) fn base(&self) -> ComposeHash {
        self.before.compose_hash()
    }

    /// Hash of the document that the CVM will run.
    pub(crate) fn compose_hash(&self) -> ComposeHash {
        self.after.compose_hash()
    }
}

/// The document that the CVM has, which is what its hash says or nothing to build upon.
async fn present(client: &Client, detail: &CvmInfoDetail) -> Result<AppCompose, Failure> {
    let id = detail.info.id.to_string();
    let text = client.text(&["cvms", &id, "compose_file"], &[("raw", "true")]).await?;
    let document = AppCompose::parse(text.as_bytes())
        .map_err(|error| Failure::local("the CVM's compose document cannot be read", error))?;
    if detail.info.compose_hash.is_some_and(|hash| hash != document.compose_hash()) {
        return Err(Failure::new(Exit::Failed, "the server shows a document that has not the CVM's hash")
            .hint("somebody changes the CVM right now, or the server does not tell the truth: try again"));
    }
    Ok(document)
}

/// The names that the document must allow for this environment, if they are not those that it allows.
fn names(document: &AppCompose, environment: &Environment) -> Option<Vec<String>> {
    let allowed = &document.members().allowed_envs;
    let mut wanted: Vec<String> = environment.iter().map(|(name, _)| name.to_owned()).collect();
    // A change of the order alone would be another document for nothing.
    let is_same = wanted.len() == allowed.len() && wanted.iter().all(|name| allowed.contains(name));
    wanted.sort();
    (!is_same).then_some(wanted)
}
