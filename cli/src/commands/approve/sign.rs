//! Signing with `ssh-keygen`: it asks for passphrases and touches, and knows agents and hardware keys.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cloister_kms_api::approvals::{MAX_SIGNATURE_BYTES, NAMESPACE};

use crate::failure::{Exit, Failure};

/// What signs.
const TOOL: &str = "ssh-keygen";

/// Has a key sign a text: that of a private key file, or the one in the agent that a public key file names.
pub(super) fn with_key(key: &Path, text: &str) -> Result<String, Failure> {
    let failed = |error| {
        Failure::local(format!("{TOOL} cannot be run"), error)
            .hint("install OpenSSH's client, or sign elsewhere and give --signature FILE")
    };
    let mut command = Command::new(TOOL);
    command.args(["-Y", "sign", "-n", NAMESPACE]);
    if key.extension().is_some_and(|extension| extension == "pub") {
        command.arg("-U");
    }
    // What it says and asks is for the person who runs this.
    let mut child =
        command.arg("-f").arg(key).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that gave up says why by its status.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    let signature = String::from_utf8(output.stdout).ok().filter(|_| output.status.success());
    signature.filter(|text| text.len() <= MAX_SIGNATURE_BYTES).ok_or_else(|| {
        Failure::new(Exit::Failed, format!("{} did not sign", key.display()))
            .hint("for a key in an agent or in hardware name its .pub file; see also ssh-add -l")
    })
}

/// How to sign without this command.
pub(super) fn by_hand(arguments: &str) -> String {
    let file = PathBuf::from("statement.txt");
    format!(
        "Sign exactly this text: save it, run {TOOL} -Y sign -n {NAMESPACE} -f KEY {file}, then cloister approve \
         {arguments} --signature {file}.sig",
        file = file.display()
    )
}
