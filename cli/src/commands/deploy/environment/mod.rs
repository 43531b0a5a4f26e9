//! The environment of an application: read here, sealed here, opened by the guest. No server sees it.

mod file;
mod known;
mod root;
mod seal;

use std::path::PathBuf;

use cloister_sealed_env::{Environment, danger};
use zeroize::Zeroizing;

pub(crate) use known::KnownRoots;
pub(crate) use root::{RootKey, check as check_root, unnamed as unnamed_root};
pub(crate) use seal::seal;

use crate::failure::{Exit, Failure};

/// Options that say what an application's environment is.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Environment")]
pub(crate) struct EnvArgs {
    /// File with lines of the form NAME=VALUE; given several times, later ones win
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// Take a variable from the environment of this command; values are never arguments, which other
    /// programs can read
    #[arg(short, long, value_name = "NAME")]
    env: Vec<String>,
    /// secp256k1 key of the KMS's root, 66 hex digits; remembered [default: the one that is remembered of the
    /// application or the server, the one that the named contract publishes, or the first that is met]
    #[arg(long, value_name = "HEX")]
    kms_root: Option<RootKey>,
}

type Pairs = Vec<(String, Zeroizing<String>)>;

impl EnvArgs {
    /// The key of the KMS's root that was named, here or by publishing it in a contract that was named.
    pub(crate) fn root(&self, published: Option<RootKey>) -> Result<Option<RootKey>, Failure> {
        match (self.kms_root, published) {
            (Some(named), Some(published)) if named != published => {
                let message =
                    format!("--kms-root is {named}, and the contract of the KMS publishes {published}");
                Err(Failure::new(Exit::Unverified, message)
                    .hint("nothing was sealed; ask the owner of the KMS contract which is right"))
            }
            (named, published) => Ok(named.or(published)),
        }
    }

    /// Whether a root was named here.
    pub(crate) const fn names_root(&self) -> bool {
        self.kms_root.is_some()
    }

    /// The environment; `None` when no option gives one.
    pub(crate) fn read(&self) -> Result<Option<Environment>, Failure> {
        if self.env_file.is_empty() && self.env.is_empty() {
            return Ok(None);
        }
        let mut pairs = Pairs::new();
        for path in &self.env_file {
            pairs.extend(file::read(path)?);
        }
        for name in &self.env {
            pairs.push((name.clone(), own(name)?));
        }
        if let Some((name, what)) = pairs.iter().find_map(|(name, _)| Some((name, danger(name)?))) {
            return Err(Failure::usage(format!("no guest takes the variable {name}: it {what}"))
                .hint("give it another name, or set it in the compose file"));
        }
        let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Environment::from_pairs(pairs)
            .map(Some)
            .map_err(|error| Failure::usage("the environment cannot be used").caused_by(error))
    }
}

/// A variable of this process.
fn own(name: &str) -> Result<Zeroizing<String>, Failure> {
    if name.contains('=') {
        return Err(Failure::usage("a value on the command line can be read by other programs").hint(
            "give the name alone, and the value in the environment of the command or with --env-file",
        ));
    }
    std::env::var(name).map(Zeroizing::new).map_err(|_| {
        Failure::usage(format!("the variable {name} is not set here, or is not text"))
            .hint(format!("set it for this command only: {name}=… cloister deploy -e {name}"))
    })
}
