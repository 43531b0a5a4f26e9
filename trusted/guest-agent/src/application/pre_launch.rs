//! The pre-launch script: sourced by bash right before the application, whose environment it may change.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use zeroize::Zeroizing;

use super::variables::Variables;
use super::{Application, ApplicationError};
use crate::output;

/// Most bytes of an environment that are taken over from the script.
const MAX_ENVIRONMENT_BYTES: u64 = 4 << 20;

/// Sources the script `$1` and leaves the environment that it made in `$2`. As on the public platform,
/// only a script that ends by itself (`exit`, or `set -e`) with an error stops the boot, not one whose
/// last command has a status other than 0; a script that bash cannot even read does too.
///
/// It has no variables of its own: the script and the sealed environment may use any name. What is left is
/// secret, so nobody else may read it.
const WRAPPER: &str = r#"
bash -n "$1" || exit
trap "(umask 077; env -0 >'$2')" EXIT
. "$1"
exit 0
"#;

impl Application {
    /// Runs the script and takes over its environment.
    pub(crate) async fn pre_launch(&mut self) -> Result<(), ApplicationError> {
        let Some(script) = self.app.members().pre_launch_script.clone() else { return Ok(()) };
        let file = self.scripts.join("pre-launch.sh");
        super::write_private(&file, script.as_bytes())?;
        let environment = self.scripts.join("environment");
        let mut bash = self.command("bash");
        bash.args(["-c", WRAPPER, "pre-launch"]).arg(file).arg(&environment);
        output::check_hiding(&mut bash, &self.hidden).await.map_err(ApplicationError::PreLaunchScript)?;
        if environment.exists() {
            self.environment = read_environment(&environment)?;
        }
        Ok(())
    }
}

fn read_environment(file: &Path) -> io::Result<Variables> {
    let mut text = Zeroizing::new(Vec::new());
    fs::File::open(file)?.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut text)?;
    fs::remove_file(file)?;
    Ok(parse_environment(&text))
}

/// Variables as `env -0` prints them. What is not text is left out: nothing could name it in a compose
/// file.
fn parse_environment(text: &[u8]) -> Variables {
    text.split(|byte| *byte == 0)
        .filter_map(|entry| str::from_utf8(entry).ok()?.split_once('='))
        .filter(|(name, _)| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn run(script: &str) -> (Option<i32>, Variables) {
        let dir = tempfile::tempdir().unwrap();
        let (file, environment) = (dir.path().join("script"), dir.path().join("environment"));
        fs::write(&file, script).unwrap();
        let status = Command::new("bash")
            .args(["-c", WRAPPER, "pre-launch"])
            .arg(file)
            .arg(&environment)
            .envs([("script", "sealed"), ("environment", "sealed")])
            .output()
            .unwrap();
        if let Ok(left) = fs::metadata(&environment) {
            assert_eq!(left.permissions().mode() & 0o777, 0o600);
        }
        (status.status.code(), read_environment(&environment).unwrap_or_default())
    }

    #[test]
    fn exports_reach_the_application() {
        let (status, environment) = run("export GREETING='a\nb=c'\nfalse\n");
        assert_eq!(status, Some(0));
        assert!(environment.iter().any(|variable| variable == ("GREETING", "a\nb=c")));
        let (status, environment) = run("export A=1; exit 0");
        assert_eq!(status, Some(0));
        assert!(environment.iter().any(|variable| variable == ("A", "1")));
    }

    #[test]
    fn no_name_is_in_the_way() {
        let value = |environment: &Variables, wanted: &str| {
            let mut found = environment.iter().filter(|(name, _)| *name == wanted);
            found.next().map(|(_, value)| value.to_owned())
        };
        let (status, environment) = run("true");
        assert_eq!(status, Some(0));
        assert_eq!(value(&environment, "script").as_deref(), Some("sealed"));
        assert_eq!(value(&environment, "environment").as_deref(), Some("sealed"));
        let (status, environment) = run("environment=production script=x; set -- a b; export A=1");
        assert_eq!(status, Some(0));
        assert_eq!(value(&environment, "environment").as_deref(), Some("production"));
        assert_eq!(value(&environment, "A").as_deref(), Some("1"));
    }

    #[test]
    fn only_a_script_that_ends_itself_with_an_error_fails() {
        assert_eq!(run("exit 3").0, Some(3));
        assert_eq!(run("set -e; false; true").0, Some(1));
        assert_ne!(run("if true; then").0, Some(0));
        assert_eq!(run("[ -n '' ] && echo never").0, Some(0));
        assert_eq!(run("null").0, Some(0));
    }

    proptest! {
        #[test]
        fn never_panics(text: Vec<u8>) {
            parse_environment(&text);
        }
    }
}
