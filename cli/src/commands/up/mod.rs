//! `cloister up`: a whole cloud in one process, for one machine.

mod cloud;
mod example;
mod guest_images;
mod ports;
mod ready;

pub(super) use guest_images::find as find_guest_images;
pub(super) use ports::DEFAULT_HTTPS;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_node::ingress::{DEFAULT_DOMAIN, Domain};
use serde_json::json;

use super::Outcome;
use crate::api::Client;
use crate::credentials::Credentials;
use crate::failure::{Exit, Failure};
use crate::logging::{self, LogFormat};
use crate::output::{Output, Progress};
use crate::parts::control_plane::Access;
use crate::parts::development_chain::{self, ChainPart};
use crate::parts::{Home, HostOptions, Interrupts, kms, prices};
use crate::places::{data_dir, login_credentials};
use crate::session::Session;
use cloud::{Cloud, Governance, Machine};
use ports::{ContractPorts, Ports};

/// What is logged for no `-v`, one and more: `up` speaks through its progress.
const LEVELS: [&str; 3] = ["error", "info", "debug,hyper=info,sqlx=info,rustls=info"];

/// Arguments of `up`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister up --deploy examples/hello")]
pub(crate) struct Args {
    /// Deploy the application in this directory (compose.yaml and image archives *.tar), unless it is
    /// there already, and wait until it answers
    #[arg(long, value_name = "DIR")]
    deploy: Option<PathBuf>,
    /// Directory with guest images [default: `$CLOISTER_GUEST_IMAGES` or guest-images in the data
    /// directory]
    #[arg(long, value_name = "DIR", env = "CLOISTER_GUEST_IMAGES", hide_env = true)]
    guest_images: Option<PathBuf>,
    /// Domain of the applications; every name below .localhost is this machine without any DNS
    #[arg(long, default_value = DEFAULT_DOMAIN)]
    domain: Domain,
    /// Seconds that running CVMs get to end their applications when the cloud stops
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    stop_timeout: u64,
    /// Start a chain, too, whose contracts decide about applications with keys from the KMS named contract; the
    /// application of --deploy is under one. Its keys are public: for trying out only
    #[arg(long)]
    development_chain: bool,
    /// Sizes that CVMs can have and what things cost, a JSON object; without it nothing costs anything
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    #[command(flatten)]
    ports: Ports,
    #[command(flatten)]
    contract_ports: ContractPorts,
    #[command(flatten)]
    host: HostOptions,
}

/// Hosts the cloud until it is told to stop.
pub(super) fn run(args: Args, session: &Session) -> Outcome {
    logging::start(LogFormat::Human, LEVELS, session.verbosity);
    super::host(up(args, session))
}

async fn up(args: Args, session: &Session) -> Outcome {
    let mut interrupts = Interrupts::install()?;
    let home = Home::open(&session.data_dir()?)?;
    let guest_images = find_guest_images(args.guest_images, home.path())?;
    let ports = args.ports.settle(kms::port_before(home.path()))?;
    let prices = prices::read(args.prices.as_deref())?;

    let output = &session.output;
    output.say(&format!("Starting a cloud in {}", home.path().display()));
    let mut progress = output.progress();
    progress.phase("starting the control plane, the node and the key management service");
    let log = logging::filter(LEVELS, session.verbosity);
    let governance = if args.development_chain {
        let before = kms::port_before(&home.join(development_chain::DIRECTORY));
        let ports = args.contract_ports.settle(before)?;
        Some(Governance { ports, chain: ChainPart::start(home.path()).await? })
    } else {
        None
    };
    let machine = Machine { guest_images: guest_images.clone(), options: args.host };
    let cloud = Cloud::start(&ports, governance, args.domain, &home, machine, prices, &log).await?;
    let brought_up = tokio::select! {
        result = bring_up(args.deploy, &guest_images, &home, &cloud, progress, output) => result,
        () = interrupts.next() => Err(Failure::new(Exit::Failed, "interrupted before the cloud was up")),
    };
    if brought_up.is_ok() {
        interrupts.next().await;
    }
    output.say("\nStopping: the CVMs end their applications. Ctrl-C again leaves them to the next start.");
    let orderly = cloud.stop(Duration::from_secs(args.stop_timeout), interrupts.again()).await;
    output.say(if orderly {
        "Stopped. The next start resumes the same CVMs."
    } else {
        "Stopped in the middle; CVMs may still run. The next start goes on with them."
    });
    brought_up
}

/// Everything between the start of the parts and a cloud that a person can use.
async fn bring_up(
    deploy: Option<PathBuf>,
    guest_images: &Path,
    home: &Home,
    cloud: &Cloud,
    mut progress: Progress,
    output: &Output,
) -> Outcome {
    let access = cloud.access(home).await?;
    let client = Client::new(access.server.clone(), access.key.clone())?;
    progress.phase("waiting for the node");
    ready::node_online(&client).await?;
    if let Some(chain) = cloud.chain() {
        progress.phase("registering the guest images and the KMS with its contract");
        chain.register(&client, guest_images).await?;
    }
    let app = match deploy {
        Some(directory) => {
            Some(example::deploy(&client, &directory, cloud, &mut progress).await.map_err(|failure| {
                failure.hint("the commands need a running cloud: cloister up, without --deploy")
            })?)
        }
        None => None,
    };
    progress.done("The cloud is up");
    if output.json {
        output.document(&json!({
            "api_url": access.server, "credentials": home.credentials(), "https_port": cloud.https_port(),
            "kms_url": cloud.kms_directory, "kms_root": home.join(kms::DIRECTORY).join(kms::ROOT_FILE),
            "app_url": app.as_ref().map(example::Running::url), "cvm": app.as_ref().map(|app| &app.cvm),
            "chain": cloud.chain().map(described),
        }));
    } else {
        present(home, &access, app.as_ref(), cloud, output);
    }
    Ok(())
}

fn described(chain: &ChainPart) -> serde_json::Value {
    json!({
        "chain_id": chain.config().chain_id, "rpc_url": chain.rpc_url(),
        "kms_contract": chain.kms_contract().to_string(), "kms": development_chain::SLUG,
        "owner_key": chain.owner_key(), "operator_key": chain.operator_key(),
    })
}

fn present(home: &Home, access: &Access, app: Option<&example::Running>, cloud: &Cloud, output: &Output) {
    let mut program = std::env::args().next().unwrap_or_else(|| "cloister".to_owned());
    if !data_dir().is_ok_and(|usual| usual == home.path()) {
        program.push_str(&format!(" --data-dir {}", home.path().display()));
    }
    let kept = format!("kept in {}", home.credentials().display());
    let key = if access.first { format!("{} (shown only now; {kept})", access.key.reveal()) } else { kept };
    output.say("");
    output.fields(&[
        ("App URL", app.map(|app| app.url().to_owned())),
        ("API URL", Some(access.server.to_string())),
        ("API key", Some(key)),
        ("KMS directory", Some(cloud.kms_directory.clone())),
        (
            "Chain",
            cloud.chain().map(|chain| format!("{} (development: its keys are public)", chain.rpc_url())),
        ),
        ("KMS contract", cloud.chain().map(|chain| chain.kms_contract().to_string())),
        ("Owner's key", cloud.chain().map(|chain| chain.owner_key().display().to_string())),
    ]);
    output.say("\nTry, in another terminal:");
    if let Some(app) = app {
        output.say(&format!("  curl {}", app.url()));
        output.say(&format!("  {program} cvms logs {} --serial", app.cvm));
    }
    output.say(&format!("  {program} cvms list"));
    output.say(&format!("  {program} deploy -c compose.yaml -n my-app"));
    output.say(&format!("  eval \"$({program} env)\"    # then any client of the public API"));
    if let Some(app) = app {
        let https_port = cloud.https_port();
        let port = if https_port == DEFAULT_HTTPS.port() {
            String::new()
        } else {
            format!(" --https-port {https_port}")
        };
        output.say(&format!(
            "  {program} verify {}{port}    # after the line above: what this CVM proves",
            app.cvm
        ));
    }
    if let Some(chain) = cloud.chain() {
        let key = chain.owner_key().display().to_string();
        let cvm = app.map_or("my-app", |app| app.cvm.as_str());
        output.say("\nUnder a contract, nothing new runs before its owner has allowed it:");
        output.say(&format!(
            "  {program} deploy -c compose.yaml -n my-app --kms {} --key-file {key}",
            development_chain::SLUG
        ));
        output
            .say(&format!("  {program} update {cvm} -c compose.yaml    # says what the owner has to allow"));
        output.say(&format!("  {program} update {cvm} -c compose.yaml --key-file {key}    # as the owner"));
    }
    if let Some(elsewhere) = logged_in_elsewhere(access) {
        output.say(&format!(
            "\nCommands go to {elsewhere} by `cloister login`; add --api-url {}",
            access.server
        ));
    }
    output.say("\nCtrl-C stops the cloud; its data stays for the next start.");
}

/// The server that commands use instead of this cloud, if somebody logged in to one.
fn logged_in_elsewhere(access: &Access) -> Option<String> {
    let credentials = Credentials::load(&login_credentials().ok()?).ok()?;
    credentials.current().filter(|server| **server != access.server).map(ToString::to_string)
}
