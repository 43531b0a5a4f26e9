//! `cloister env`: variables under which clients find the cloud.

use cloister_control_plane::DEVELOPMENT_ROOT_FILE;
use serde_json::Value;

use super::Outcome;
use crate::api::BaseUrl;
use crate::credentials::{Credentials, FILE_NAME};
use crate::failure::Failure;
use crate::session::Session;

/// Arguments of `env`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: eval \"$(cloister env)\"")]
pub(crate) struct Args {}

/// Prints the variables, after a look whether the cloud is there.
pub(super) async fn run(_args: Args, session: &Session) -> Outcome {
    let client = session.client()?;
    client.get(&["auth", "me"], &[]).await?;
    let (url, key) = (client.server().to_string(), client.key().reveal());
    let root = development_root(session, client.server())?;
    let mut variables = vec![
        ("CLOISTER_API_URL", url.as_str()),
        ("CLOISTER_API_KEY", key),
        ("PHALA_CLOUD_API_PREFIX", url.as_str()),
        ("PHALA_CLOUD_API_KEY", key),
    ];
    variables.extend(root.as_deref().map(|root| ("CLOISTER_DEVELOPMENT_ROOT", root)));
    if session.output.json {
        let members = variables.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
        session.output.document(&Value::Object(members.collect()));
        return Ok(());
    }
    for (name, value) in variables {
        session.output.line(&format!("export {name}={}", quoted(value)));
    }
    Ok(())
}

/// Where the development root of the cloud on this machine is, if that is the cloud in use: the root of
/// another one would vouch for nothing here.
fn development_root(session: &Session, server: &BaseUrl) -> Result<Option<String>, Failure> {
    let data_dir = session.data_dir()?;
    if Credentials::load(&data_dir.join(FILE_NAME))?.key(server).is_none() {
        return Ok(None);
    }
    let path = data_dir.join("control-plane").join(DEVELOPMENT_ROOT_FILE);
    // Not there in production.
    Ok(path.canonicalize().ok().and_then(|path| path.into_os_string().into_string().ok()))
}

/// A word that every POSIX shell reads back as exactly this value.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for value in ["plain", "", "two words", "it's", "$(rm -rf x) `y` \"z\" \\", "a\nb"] {
            let script = format!("printf %s {}", quoted(value));
            let shell = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(shell.stdout).unwrap(), value);
        }
    }
}
