//! What every command needs: where to print, which files to use and which server to talk to.

use std::path::PathBuf;

use crate::api::{BaseUrl, Client};
use crate::args::Global;
use crate::credentials::{ApiKey, Credentials, FILE_NAME};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::places;

/// Variables that name the server; the second one is that of other public clients.
const URL_VARIABLES: [&str; 2] = ["CLOISTER_API_URL", "PHALA_CLOUD_API_PREFIX"];
/// Variables that carry the key, in the same order.
const KEY_VARIABLES: [&str; 2] = ["CLOISTER_API_KEY", "PHALA_CLOUD_API_KEY"];

/// One run of the command.
#[derive(Debug)]
pub(crate) struct Session {
    /// Where to print.
    pub(crate) output: Output,
    /// How many times `-v` was given.
    pub(crate) verbosity: u8,
    data_dir: Option<PathBuf>,
    api_url: Option<BaseUrl>,
}

impl Session {
    /// Takes the options that all commands share.
    pub(crate) fn new(global: &Global) -> Self {
        Self {
            output: Output::detect(global.json),
            verbosity: global.verbose,
            data_dir: global.data_dir.clone(),
            api_url: global.api_url.clone(),
        }
    }

    /// Directory of the cloud that `cloister up` hosts.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Failure> {
        self.data_dir.clone().map_or_else(places::data_dir, Ok)
    }

    /// The server that was named by option or environment.
    pub(crate) fn named_server(&self) -> Result<Option<BaseUrl>, Failure> {
        if self.api_url.is_some() {
            return Ok(self.api_url.clone());
        }
        variable(&URL_VARIABLES)
            .map(|text| {
                text.parse().map_err(|error| Failure::usage("the server's URL is wrong").caused_by(error))
            })
            .transpose()
    }

    /// The server and key to use: what was named, then what `cloister login` kept, then the cloud that
    /// runs here. A kept key goes only to the server that it was kept for.
    pub(crate) fn endpoint(&self) -> Result<(BaseUrl, ApiKey), Failure> {
        let login = Credentials::load(&places::login_credentials()?)?;
        let local = Credentials::load(&self.data_dir()?.join(FILE_NAME))?;
        let kept = [&login, &local];
        let server = match self.named_server()? {
            Some(server) => server,
            None => kept.iter().find_map(|file| file.current()).cloned().ok_or_else(no_server)?,
        };
        let key = match variable(&KEY_VARIABLES) {
            Some(text) => ApiKey::parse(&text)?,
            None => kept.iter().find_map(|file| file.key(&server)).cloned().ok_or_else(|| no_key(&server))?,
        };
        Ok((server, key))
    }

    /// The server that commands use, whether or not there is a key for it.
    pub(crate) fn server(&self) -> Result<Option<BaseUrl>, Failure> {
        if let Some(server) = self.named_server()? {
            return Ok(Some(server));
        }
        for path in [places::login_credentials()?, self.data_dir()?.join(FILE_NAME)] {
            if let Some(server) = Credentials::load(&path)?.current() {
                return Ok(Some(server.clone()));
            }
        }
        Ok(None)
    }

    /// A client for [`Session::endpoint`].
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let (server, key) = self.endpoint()?;
        Client::new(server, key)
    }
}

fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

fn no_server() -> Failure {
    Failure::new(Exit::Unreachable, "no server is known")
        .hint("start a cloud on this machine: cloister up")
        .hint("or use one that runs elsewhere: cloister login --api-url URL")
}

fn no_key(server: &BaseUrl) -> Failure {
    Failure::new(Exit::Unauthorised, format!("no API key is known for {server}"))
        .hint(format!("keep one: cloister login --api-url {server}"))
        .hint("or set CLOISTER_API_KEY")
}
