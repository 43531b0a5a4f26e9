//! Environment variables of the application's programs, some of which are secret.

use std::fmt::{self, Write as _};
use std::io;
use std::path::Path;

use cloister_sealed_env::Environment;
use zeroize::Zeroizing;

use super::write_private;

/// What the deployer sealed, as the public platform leaves it to scripts: in the syntax of a service's
/// environment file, and in JSON.
const FILE: &str = ".decrypted-env";
const JSON_FILE: &str = ".decrypted-env.json";

/// Names and values; the values are wiped when dropped, and only names are printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Variables(Vec<(String, Zeroizing<String>)>);

impl Variables {
    /// Names and values in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Adds what the deployer sealed. Names that the system sets itself keep their values: it relies on them.
    pub(super) fn add(&mut self, environment: &Environment) {
        let fresh = environment.iter().filter(|(name, _)| !self.iter().any(|(known, _)| known == *name));
        let fresh: Vec<_> = fresh.map(|(name, value)| (name.to_owned(), value.to_owned().into())).collect();
        self.0.extend(fresh);
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into().into())).collect())
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Leaves the environment in `directory`, which must not outlive the boot.
pub(super) fn write_files(directory: &Path, environment: &Environment) -> io::Result<()> {
    write_private(&directory.join(FILE), service_file(environment).as_bytes())?;
    let json = Json(environment);
    let length = environment.iter().map(|(name, value)| name.len() + 6 * value.len() + 8).sum::<usize>();
    let mut text = Zeroizing::new(Vec::with_capacity(length + 2));
    serde_json::to_writer(&mut *text, &json)?;
    write_private(&directory.join(JSON_FILE), &text)
}

/// `NAME="value"` lines in which a service manager and a shell read the same values.
fn service_file(environment: &Environment) -> Zeroizing<String> {
    let length = environment.iter().map(|(name, value)| name.len() + 2 * value.len() + 4).sum();
    let mut text = Zeroizing::new(String::with_capacity(length));
    for (name, value) in environment.iter() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name}=\"");
        for character in value.chars() {
            if matches!(character, '"' | '\\' | '$' | '`') {
                text.push('\\');
            }
            text.push(character);
        }
        text.push_str("\"\n");
    }
    text
}

/// A JSON object without a copy of the values.
struct Json<'a>(&'a Environment);

impl serde::Serialize for Json<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::from_pairs(pairs.iter().copied()).unwrap()
    }

    #[test]
    fn what_the_system_sets_stays() {
        let mut variables: Variables = [("DSTACK_APP_ID", "1")].into_iter().collect();
        variables.add(&environment(&[("DSTACK_APP_ID", "2"), ("TOKEN", "s3cr3t")]));
        assert_eq!(variables.iter().collect::<Vec<_>>(), [("DSTACK_APP_ID", "1"), ("TOKEN", "s3cr3t")]);
        assert_eq!(format!("{variables:?}"), r#"{"DSTACK_APP_ID", "TOKEN"}"#);
    }

    #[test]
    fn files_are_for_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        write_files(directory.path(), &environment(&[("A", "x\ny"), ("B", "\"$(`z`)")])).unwrap();
        for name in [FILE, JSON_FILE] {
            let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let json = fs::read_to_string(directory.path().join(JSON_FILE)).unwrap();
        assert_eq!(json, r#"{"A":"x\ny","B":"\"$(`z`)"}"#);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_shell_reads_the_values_that_were_sealed(value in "[^\\x00]{0,40}") {
            let directory = tempfile::tempdir().unwrap();
            write_files(directory.path(), &environment(&[("SEALED", &value)])).unwrap();
            let script = ". \"$1\"; printf %s \"$SEALED\"";
            let file = directory.path().join(FILE);
            let bash = Command::new("bash").args(["-c", script, "read"]).arg(file).output().unwrap();
            prop_assert_eq!(bash.stdout, value.as_bytes());
        }
    }
}
