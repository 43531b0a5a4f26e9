//! `cloister up`: a whole cloud in one process, for one machine.

mod cloud;
mod example;
mod guest_images;
mod ports;
mod present;
mod ready;

pub(super) use guest_images::find as find_guest_images;
pub(super) use ports::DEFAULT_HTTPS;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_node::ingress::{DEFAULT_DOMAIN, Domain};

use super::Outcome;
use crate::api::Client;
use crate::failure::{Exit, Failure};
use crate::logging::{self, LogFormat};
use crate::output::{Output, Progress};
use crate::parts::development_chain::{self, ChainPart};
use crate::parts::inference::{self, Own};
use crate::parts::{Home, HostOptions, Interrupts, kms, prices};
use crate::session::Session;
use cloud::{Cloud, Governance, Machine, Plan};
use ports::{ContractPorts, Ports};
use present::Standing;

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
    let gateway = Own::find(home.path())?;
    let (ports, _claims) = args.ports.settle(kms::port_before(home.path()), gateway.as_ref())?;
    let prices = prices::read(args.prices.as_deref())?;

    let output = &session.output;
    output.say(&format!("Starting a cloud in {}", home.path().display()));
    let mut progress = output.progress();
    progress
        .phase("starting the control plane, the node, the key management service and the inference gateway");
    let log = logging::filter(LEVELS, session.verbosity);
    let (governance, _more_claims) = if args.development_chain {
        let before = kms::port_before(&home.join(development_chain::DIRECTORY));
        let (ports, claims) = args.contract_ports.settle(before)?;
        (Some(Governance { ports, chain: ChainPart::start(home.path()).await? }), claims)
    } else {
        (None, Vec::new())
    };
    let machine = Machine { guest_images: guest_images.clone(), options: args.host };
    let plan = Plan { governance, gateway, domain: args.domain, machine, prices, log };
    let cloud = Cloud::start(&ports, &home, plan).await?;
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
    let key = match &cloud.inference.key_file {
        Some(file) => Some(inference::key(&client, file).await?),
        None => None,
    };
    progress.done("The cloud is up");
    Standing { home, access: &access, app: app.as_ref(), key: key.as_ref(), cloud }.show(output);
    Ok(())
}
