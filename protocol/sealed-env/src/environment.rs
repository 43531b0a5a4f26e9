use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use zeroize::Zeroizing;

/// Most variables of an environment.
pub const MAX_VARIABLES: usize = 1024;
/// Longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest value, in bytes, with its name, the `=` between them and the NUL behind them: what Linux takes as one
/// string of a program's environment. Nothing could be started with a longer one.
pub const MAX_VALUE_BYTES: usize = 128 * 1024;
/// Most bytes of all names and values together.
pub const MAX_TOTAL_BYTES: usize = 1024 * 1024;

/// What is not an environment. Values may be secret and names may be values by mistake, so neither is
/// repeated: variables are told by their position, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEnvironment {
    /// Not JSON of the form `{"env":[{"key":…,"value":…},…]}`.
    #[error("an environment is JSON of the form {{\"env\":[{{\"key\":\"NAME\",\"value\":\"…\"}}]}}")]
    Form,
    /// More than [`MAX_VARIABLES`].
    #[error("an environment has at most {MAX_VARIABLES} variables, not {0}")]
    Count(usize),
    /// Something else than letters, digits and `_`, a digit in front, empty, or too long.
    #[error(
        "the name of variable {0} must have 1 to {MAX_NAME_BYTES} letters, digits or _, and no digit in front"
    )]
    Name(usize),
    /// Longer than [`MAX_VALUE_BYTES`] allows.
    #[error("variable {0} is longer than {MAX_VALUE_BYTES} bytes, name and value together")]
    Value(usize),
    /// A NUL in a value ends it early for the programs that read it.
    #[error("the value of variable {0} contains a NUL character")]
    Nul(usize),
    /// More than [`MAX_TOTAL_BYTES`].
    #[error("the environment is larger than {MAX_TOTAL_BYTES} bytes in total")]
    Total,
}

/// Variables in the order in which they were given. Values are wiped when it is dropped, and have no readable
/// form.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: Vec<(String, Zeroizing<String>)>,
}

#[derive(Deserialize)]
struct Document {
    env: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    key: String,
    #[serde(deserialize_with = "secret")]
    value: Zeroizing<String>,
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(deserializer).map(Zeroizing::new)
}

#[derive(Serialize)]
struct DocumentRef<'a> {
    env: Vec<VariableRef<'a>>,
}

#[derive(Serialize)]
struct VariableRef<'a> {
    key: &'a str,
    value: &'a str,
}

impl Environment {
    /// Reads the plaintext of a sealed environment. Members that mean nothing to us do not count, and of
    /// several variables of one name the last one holds.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidEnvironment> {
        let document: Document = serde_json::from_slice(json).map_err(|_| InvalidEnvironment::Form)?;
        Self::checked(document.env.into_iter().map(|variable| (variable.key, variable.value)).collect())
    }

    /// From pairs of name and value, with the same limits.
    pub fn from_pairs<N, V>(pairs: impl IntoIterator<Item = (N, V)>) -> Result<Self, InvalidEnvironment>
    where
        N: Into<String>,
        V: Into<String>,
    {
        // One more than allowed is enough to know.
        let pairs = pairs.into_iter().take(MAX_VARIABLES + 1);
        Self::checked(pairs.map(|(name, value)| (name.into(), Zeroizing::new(value.into()))).collect())
    }

    fn checked(variables: Vec<(String, Zeroizing<String>)>) -> Result<Self, InvalidEnvironment> {
        if variables.len() > MAX_VARIABLES {
            return Err(InvalidEnvironment::Count(variables.len()));
        }
        let mut total = 0usize;
        for (position, (name, value)) in (1..).zip(&variables) {
            if !is_name(name) {
                return Err(InvalidEnvironment::Name(position));
            }
            if name.len().saturating_add(value.len()).saturating_add(2) > MAX_VALUE_BYTES {
                return Err(InvalidEnvironment::Value(position));
            }
            if value.contains('\0') {
                return Err(InvalidEnvironment::Nul(position));
            }
            total = total.saturating_add(name.len()).saturating_add(value.len());
        }
        if total > MAX_TOTAL_BYTES {
            return Err(InvalidEnvironment::Total);
        }
        Ok(Self { variables: last_of_each_name(variables) })
    }

    pub(crate) fn from_checked(variables: Vec<(String, Zeroizing<String>)>) -> Self {
        Self { variables }
    }

    pub(crate) fn into_variables(self) -> Vec<(String, Zeroizing<String>)> {
        self.variables
    }

    /// The plaintext: compact JSON, as the public clients write it.
    #[must_use]
    pub fn to_json(&self) -> Zeroizing<Vec<u8>> {
        let env = self.iter().map(|(key, value)| VariableRef { key, value }).collect();
        // Allocated once for the longest escapes, so that no part of it stays behind when it grows.
        let bytes: usize = self.iter().map(|(key, value)| key.len() + value.len() * 6 + 24).sum();
        let mut json = Zeroizing::new(Vec::with_capacity(bytes + 16));
        // Texts into memory: nothing of it can fail.
        let _ = serde_json::to_writer(&mut *json, &DocumentRef { env });
        json
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// How many variables there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.variables.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }
}

impl fmt::Debug for Environment {
    /// Names only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// Of several variables of one name the last one, each at its own place.
fn last_of_each_name(variables: Vec<(String, Zeroizing<String>)>) -> Vec<(String, Zeroizing<String>)> {
    let last: BTreeMap<String, usize> =
        variables.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect();
    let kept = variables.into_iter().enumerate().filter(|(index, (name, _))| last.get(name) == Some(index));
    kept.map(|(_, variable)| variable).collect()
}

/// `[A-Za-z_][A-Za-z0-9_]*`, at most [`MAX_NAME_BYTES`]: what a shell can name.
fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.len() <= MAX_NAME_BYTES
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}
