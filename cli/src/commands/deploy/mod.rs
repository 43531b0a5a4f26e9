//! `cloister deploy`: from a compose file to a running CVM.

mod app;
mod contract;
mod environment;
mod estimate;
mod key_provider;
mod size;

pub(super) use app::{App, Parts, read_text};
pub(super) use contract::{Contract, Made};
pub(super) use environment::{EnvArgs, seal};
pub(crate) use environment::{KnownRoots, RootKey, check_root};
pub(super) use key_provider::names_kms;
pub(super) use size::{Gibibytes, Mebibytes, Size};

use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_app_compose::AppId;
use cloister_kms_api::approvals::Owners;
use cloister_management_api::{CvmName, ProvisionResponse, Vm, VmId};
use cloister_sealed_env::Environment;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use self::key_provider::KeyProviderId;
use super::chain::OwnerOptions;
use super::follow::{self, Goal};
use super::{Outcome, commit, cvms, owners};
use crate::api::{Client, read};
use crate::args::Waiting;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Names that a compose file has when nobody names it, in the order of the compose specification.
const COMPOSE_FILES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

/// Pause before a server that does not see a transaction yet is asked again.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// Arguments of `deploy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister deploy -c compose.yaml -n my-app --memory 2G")]
pub(crate) struct Args {
    /// Compose file [default: compose.yaml, compose.yml, docker-compose.yaml or docker-compose.yml]
    #[arg(short, long, value_name = "FILE")]
    compose: Option<PathBuf>,
    /// Name of the CVM, 5 to 63 letters, digits and hyphens [default: name of the file's directory]
    #[arg(short, long)]
    name: Option<CvmName>,
    /// Bash script that the guest runs right before the application starts
    #[arg(long, value_name = "FILE")]
    pre_launch_script: Option<PathBuf>,
    /// Let anybody who knows the app id read the logs
    #[arg(long)]
    public_logs: bool,
    /// Show what it would cost, and deploy nothing
    #[arg(long)]
    estimate: bool,
    #[command(flatten)]
    environment: EnvArgs,
    #[command(flatten)]
    size: Size,
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    owner: OwnerOptions,
    #[command(flatten)]
    owners: OwnersArgs,
    #[command(flatten)]
    waiting: Waiting,
}

/// Who has to sign what the application runs, where no contract decides.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Owners")]
pub(crate) struct OwnersArgs {
    /// File with the public SSH keys of the application's owners, one a line; set once it runs
    #[arg(long, value_name = "FILE", requires = "threshold", conflicts_with = "no_wait")]
    owners: Option<PathBuf>,
    /// How many of the owners have to sign a change
    #[arg(long, value_name = "COUNT", requires = "owners", value_parser = clap::value_parser!(u32).range(1..=32))]
    threshold: Option<u32>,
}

impl OwnersArgs {
    fn read(&self) -> Result<Option<Owners>, Failure> {
        let Some((file, threshold)) = self.owners.as_ref().zip(self.threshold) else { return Ok(None) };
        owners::read_owners(std::slice::from_ref(file), threshold).map(Some)
    }
}

/// Where the application's keys come from.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Keys")]
pub(crate) struct Keys {
    /// KMS by name or id, or of a kind: phala (no contract), ethereum, base [default: the server's first one]
    #[arg(long, value_name = "KMS")]
    pub(crate) kms: Option<String>,
    /// Contract of the application, where a contract decides for the KMS [default: a new one is made]
    #[arg(long, value_name = "ADDRESS", requires = "kms")]
    pub(crate) app: Option<AppId>,
    /// Authority that the KMS must have, or have had: "Root authority" of `cloister kms status`. It stands in the document, so that
    /// the guest takes keys of no other KMS; what is sealed goes by --kms-root [default: the KMS that the cloud names]
    #[arg(long, value_name = "HEX")]
    pub(crate) key_provider_id: Option<KeyProviderId>,
}

/// Deploys and says where the application answers.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    if args.estimate {
        return estimate::run(&session.client()?, &args.size, &session.output).await;
    }
    let environment = args.environment.read()?;
    let app = app(&args, environment.as_ref())?;
    let app_owners = args.owners.read()?;
    // Before anything is made, on a chain or here: it would fail afterwards.
    if environment.is_some() && args.keys.key_provider_id.is_some() && !args.environment.names_root() {
        return Err(environment::unnamed_root());
    }
    let (client, output) = (session.client()?, &session.output);
    let mut progress = output.progress();
    progress.phase("checking the compose file");
    let provision = provision(&client, &app, &args.size, &args.keys).await?;
    let (made, mut progress) = match Contract::of(&provision) {
        None if args.keys.app.is_some() || args.owner.expects_contract() => return Err(no_contract()),
        None => (None, progress),
        Some(contract) => {
            // A person may be asked meanwhile.
            drop(progress);
            let made = contract.made(&app, &args.keys, &args.owner, session).await?;
            let mut progress = output.progress();
            progress.phase("creating the CVM");
            (Some(made), progress)
        }
    };
    let sealed = match &environment {
        None => None,
        Some(environment) => {
            progress.phase("sealing the environment");
            Some(sealed(&provision, made.as_ref(), environment, &args, &client, session).await?)
        }
    };
    let created = create_from(&client, &app, &provision, made.as_ref(), sealed).await?;
    let id = text_id(&read::<Vm>(&created)?.id);
    if args.waiting.no_wait {
        progress.done(&format!("{} is accepted", app.name()));
        if output.json {
            output.document(&created);
        } else {
            output.say(&format!("See how far it is: cloister cvms get {}", app.name()));
        }
        return Ok(());
    }
    follow::follow(&client, &id, Goal::Running, args.waiting.timeout, &mut progress).await?;
    let (document, detail) = follow::detail(&client, &id).await?;
    progress.done(&format!("{} is running", app.name()));
    if let (Some(owners), Some(app_id)) = (&app_owners, detail.app_id) {
        owners::set(&app_id.to_string(), owners, &client, session).await.map_err(|failure| {
            failure.hint(format!("the CVM runs; see who owns its application: cloister owners show {app_id}"))
        })?;
    }
    if output.json {
        output.document(&document);
        return Ok(());
    }
    cvms::summary(output, &detail, None);
    output.say(&format!("Read its logs: cloister cvms logs {}", app.name()));
    output.say(&format!("Delete it: cloister cvms delete {}", app.name()));
    Ok(())
}

/// The server says that nobody but the workspace decides, and the options say otherwise.
fn no_contract() -> Failure {
    Failure::new(Exit::Unverified, "the server says that no contract decides for this KMS, and one was named")
        .hint("nothing was created; name the KMS of the contract: --kms KMS")
        .hint("or deploy without --app and the options of chain and signing")
}

fn text_id(id: &VmId) -> String {
    match id {
        VmId::Integer(number) => number.to_string(),
        VmId::Hashed(id) => id.to_string(),
    }
}

fn app(args: &Args, environment: Option<&Environment>) -> Result<App, Failure> {
    let path = args.compose.clone().map_or_else(default_compose_file, Ok)?;
    let compose = read_text(&path)?;
    let script = args.pre_launch_script.as_deref().map(read_text).transpose()?;
    let name = args.name.clone().map_or_else(|| name_from(&path), Ok)?;
    let names: Vec<_> = environment.into_iter().flat_map(Environment::iter).map(|(name, _)| name).collect();
    let parts = Parts {
        compose_file: &compose,
        pre_launch_script: script.as_deref(),
        public_logs: args.public_logs,
        allowed_envs: &names,
        key_provider_id: args.keys.key_provider_id.clone(),
    };
    App::new(name, &parts)
}

fn default_compose_file() -> Result<PathBuf, Failure> {
    let found = COMPOSE_FILES.iter().map(PathBuf::from).find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::usage("there is no compose file here").hint("name one: cloister deploy -c FILE")
    })
}

/// The name of the directory that holds the file, in the form that CVM names have.
pub(super) fn name_from(path: &Path) -> Result<CvmName, Failure> {
    let directory = path.canonicalize().ok().and_then(|path| Some(path.parent()?.file_name()?.to_owned()));
    let text = directory.unwrap_or_default().to_string_lossy().to_lowercase();
    let words: Vec<&str> =
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("-").parse().map_err(|error| {
        Failure::usage(format!("the directory's name {text:?} cannot name a CVM"))
            .caused_by(error)
            .hint("give a name: cloister deploy -n NAME")
    })
}

/// Makes the CVM and answers with its record. The operation goes on in the cloud.
pub(super) async fn create(client: &Client, app: &App, size: &Size) -> Result<Value, Failure> {
    let provision = provision(client, app, size, &Keys::default()).await?;
    create_from(client, app, &provision, None, None).await
}

/// Has the document checked and placed.
pub(super) async fn provision(
    client: &Client,
    app: &App,
    size: &Size,
    keys: &Keys,
) -> Result<ProvisionResponse, Failure> {
    let provision = client.post(&["cvms", "provision"], Some(&request(app, size, keys))).await;
    let provision: ProvisionResponse = read(&provision.map_err(|failure| taken(failure, app))?)?;
    if provision.compose_hash != app.compose_hash() {
        return Err(another_document(&provision, app));
    }
    Ok(provision)
}

/// Seals to the key of the application that was provisioned.
async fn sealed(
    provision: &ProvisionResponse,
    made: Option<&Made>,
    environment: &Environment,
    args: &Args,
    client: &Client,
    session: &Session,
) -> Result<String, Failure> {
    let app_id = made.map(|made| made.app_id).or(provision.app_id);
    let (Some(kms), Some(app_id)) = (&provision.kms_info, app_id) else {
        return Err(Failure::new(
            Exit::Failed,
            "the server has no KMS, so that no guest could open an environment",
        )
        .hint("nothing was created; deploy without --env-file and -e, or ask the operator for a KMS"));
    };
    let kms = kms.id.to_string();
    let root = args.environment.root(made.and_then(|made| made.root))?;
    let is_pinned = args.keys.key_provider_id.is_some();
    seal(environment, app_id, &kms, root, is_pinned, client, session).await
}

/// Makes the CVM of a provision. The server may need more confirmations than this command before it sees what was
/// sent for `made`.
pub(super) async fn create_from(
    client: &Client,
    app: &App,
    provision: &ProvisionResponse,
    made: Option<&Made>,
    encrypted_env: Option<String>,
) -> Result<Value, Failure> {
    let app_id = made.map(|made| made.app_id).or(provision.app_id);
    let mut body = json!({ "app_id": app_id, "compose_hash": provision.compose_hash });
    if let Some(members) = body.as_object_mut() {
        members.extend(encrypted_env.map(|sealed| ("encrypted_env".to_owned(), sealed.into())));
        let transaction = made.and_then(|made| made.transaction.clone());
        members.extend(transaction.map(|hash| ("transaction_hash".to_owned(), hash.into())));
    }
    let began = Instant::now();
    loop {
        match client.post(&["cvms"], Some(&body)).await {
            Err(failure)
                if failure.exit == Exit::AwaitsApproval
                    && made.is_some_and(|made| made.transaction.is_some())
                    && began.elapsed() < commit::PATIENCE =>
            {
                sleep(LOOK_AGAIN).await;
            }
            other => return other.map_err(|failure| taken(failure, app)),
        }
    }
}

fn another_document(provision: &ProvisionResponse, app: &App) -> Failure {
    let (theirs, ours) = (provision.compose_hash, app.compose_hash());
    Failure::new(
        Exit::Failed,
        format!("the server would run {theirs} instead of {ours}; nothing was created"),
    )
    .hint("compare `cloister version` with the server's version")
    .hint("if the versions agree, the server changed your document: do not trust it")
}

fn request(app: &App, size: &Size, keys: &Keys) -> Value {
    let mut request = json!({ "name": app.name().as_str(), "compose_file": app.document(), "listed": false });
    if let Some(members) = request.as_object_mut() {
        members.extend(size.members());
        members.extend(keys.kms.as_ref().map(|kms| ("kms_id".to_owned(), json!(kms))));
        members.extend(keys.app.map(|app| ("app_id".to_owned(), json!(app))));
    }
    request
}

fn taken(failure: Failure, app: &App) -> Failure {
    if failure.exit != Exit::Conflict {
        return failure;
    }
    failure
        .hint(format!("change the CVM that has the name: cloister update {} -c FILE", app.name()))
        .hint(format!("or give another name: cloister deploy -n {}-2", app.name()))
        .hint(format!("or delete the old one and its data: cloister cvms delete {}", app.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_names_the_cvm() {
        let parent = tempfile::tempdir().unwrap();
        let name = |directory: &str| {
            let directory = parent.path().join(directory);
            std::fs::create_dir_all(&directory).unwrap();
            let file = directory.join("compose.yaml");
            std::fs::write(&file, "").unwrap();
            name_from(&file).map(|name| name.to_string()).map_err(|failure| failure.exit)
        };
        assert_eq!(name("hello"), Ok("hello".to_owned()));
        assert_eq!(name("My_Web App."), Ok("my-web-app".to_owned()));
        assert_eq!(name("web"), Err(Exit::Usage));
    }
}
