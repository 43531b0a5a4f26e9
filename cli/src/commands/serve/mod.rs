//! `cloister serve`: one part of a cloud, for service managers.

mod chain_list;
mod control_plane;
mod echo_upstream;
mod inference_gateway;
mod json_file;
mod kms;
mod kms_list;
mod node;
mod oauth_clients;
mod openid_provider;
mod parent;

use super::Outcome;
use crate::logging::{self, LogFormat};
use crate::session::Session;

/// What is logged for no `-v`, one and more.
const LEVELS: [&str; 3] = ["info", "debug,hyper=info,sqlx=info,rustls=info", "trace"];

/// The parts.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Part {
    /// The management API and its operations
    ControlPlane(control_plane::Args),
    /// CVMs on this machine and the ingress to them
    Node(node::Args),
    /// A key management service, which releases keys to code that proves itself
    Kms(kms::Args),
    /// An OpenAI-compatible gateway whose answers carry proof
    InferenceGateway(inference_gateway::Args),
    /// An upstream for trying out the gateway: no model, it answers with what it is asked
    EchoUpstream(echo_upstream::Args),
}

/// Options of every part.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Logging {
    /// Form of the log on stderr
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
}

/// Runs the part until it is told to stop.
pub(super) fn run(part: Part, session: &Session) -> Outcome {
    let start = |logging: &Logging| logging::start(logging.log_format, LEVELS, session.verbosity);
    match part {
        Part::ControlPlane(args) => {
            start(&args.logging);
            super::host(control_plane::run(args, session))
        }
        Part::Node(args) => {
            start(&args.logging);
            super::host(node::run(args, session))
        }
        Part::Kms(args) => {
            start(&args.logging);
            super::host(kms::run(args, session))
        }
        Part::InferenceGateway(args) => {
            start(&args.logging);
            super::host(inference_gateway::run(args))
        }
        Part::EchoUpstream(args) => {
            start(&args.logging);
            super::host(echo_upstream::run(args))
        }
    }
}
