//! Names of CVMs, and the many ways to say which CVM is meant.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use cloister_app_compose::decode::{self, Decode, Reader};
use cloister_app_compose::{AppId, InstanceId};
use serde_json::Value;
use uuid::Uuid;

use crate::ids::CvmId;

/// Shortest name of a CVM.
pub const MIN_NAME: usize = 5;
/// Longest name of a CVM.
pub const MAX_NAME: usize = 63;

/// A valid name of a CVM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CvmName(String);

/// A text that cannot name a CVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Too short or too long.
    #[error("a name has {MIN_NAME} to {MAX_NAME} characters")]
    Length,
    /// Not of the form that host names have.
    #[error(
        "a name begins with a letter, ends with a letter or digit, and has only letters, digits and single hyphens"
    )]
    Form,
    /// An identifier would win over such a name.
    #[error("a name must not look like a UUID or an app id; choose another")]
    LooksLikeIdentifier,
}

impl CvmName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CvmName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if !(MIN_NAME..=MAX_NAME).contains(&text.chars().count()) {
            return Err(InvalidName::Length);
        }
        if !has_form_of_name(text) {
            return Err(InvalidName::Form);
        }
        match text.parse() {
            Ok(CvmIdentifier::Name(_)) => Ok(Self(text.to_owned())),
            _ => Err(InvalidName::LooksLikeIdentifier),
        }
    }
}

impl fmt::Display for CvmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Decode for CvmName {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        decode::parsed(value, reader)
    }
}

impl serde::Serialize for CvmName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// How a caller may point at a CVM, in the order in which the forms are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CvmIdentifier {
    /// Our number, or its hashed text.
    Id(CvmId),
    /// Identity on the node; dashes are optional.
    Uuid(Uuid),
    /// Forty hex digits: the only CVM of that application, else the CVM with that instance id, because
    /// public clients prefix both with `app_`.
    AppOrInstance(AppId, InstanceId),
    /// `instance_` and forty hex digits.
    Instance(InstanceId),
    /// Anything else that can be a name.
    Name(String),
    /// Has the form of an identifier but can name nothing, or cannot be a name.
    Nothing,
}

impl FromStr for CvmIdentifier {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(text.parse().map_or(Self::Nothing, |id| Self::Id(CvmId(id))));
        }
        if text.starts_with("cvm_") {
            return Ok(text.parse().map_or(Self::Nothing, Self::Id));
        }
        if let Some(uuid) = uuid(text) {
            return Ok(Self::Uuid(uuid));
        }
        if let Some(digits) = text.strip_prefix("instance_") {
            return Ok(digits.parse().map_or(Self::Nothing, Self::Instance));
        }
        let digits = text.strip_prefix("app_").unwrap_or(text);
        let digits = digits.strip_prefix("id_").unwrap_or(digits);
        match (digits.parse(), digits.parse()) {
            (Ok(app), Ok(instance)) => Ok(Self::AppOrInstance(app, instance)),
            _ if text.len() <= MAX_NAME && has_form_of_name(text) => Ok(Self::Name(text.to_owned())),
            _ => Ok(Self::Nothing),
        }
    }
}

fn has_form_of_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !text.contains("--")
}

/// The two spellings of a UUID that are accepted; the library knows more.
fn uuid(text: &str) -> Option<Uuid> {
    let dashed = text.len() == 36 && [8, 13, 18, 23].iter().all(|at| text.as_bytes().get(*at) == Some(&b'-'));
    let simple = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if dashed || simple { Uuid::try_parse(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn name_rule() {
        for name in ["Abcde", "my-app-01", "a-b-c", &"a".repeat(63), "deadbeef"] {
            assert!(name.parse::<CvmName>().is_ok(), "{name}");
        }
        for (name, why) in [
            ("abcd", InvalidName::Length),
            (&*"a".repeat(64), InvalidName::Length),
            ("", InvalidName::Length),
            ("1abcd", InvalidName::Form),
            ("abcde-", InvalidName::Form),
            ("ab--cd", InvalidName::Form),
            ("ab_cde", InvalidName::Form),
            ("äbcde", InvalidName::Form),
            ("-abcd", InvalidName::Form),
            ("f47ac10b-58cc-4372-a567-0e02b2c3d479", InvalidName::LooksLikeIdentifier),
            ("f47ac10b58cc4372a5670e02b2c3d479", InvalidName::LooksLikeIdentifier),
            (&*"a".repeat(40), InvalidName::LooksLikeIdentifier),
        ] {
            assert_eq!(name.parse::<CvmName>(), Err(why), "{name}");
        }
    }

    #[test]
    fn identifier_forms() {
        let hex = "6f809b3214eb9a69571ad008289d9551fa9a4272";
        let id = |text: &str| text.parse::<CvmIdentifier>().unwrap();
        let app = CvmIdentifier::AppOrInstance(hex.parse().unwrap(), hex.parse().unwrap());
        let uuid = CvmIdentifier::Uuid("f47ac10b-58cc-4372-a567-0e02b2c3d479".parse().unwrap());
        for (text, expected) in [
            ("17".to_owned(), CvmIdentifier::Id(CvmId(17))),
            (CvmId(17).to_string(), CvmIdentifier::Id(CvmId(17))),
            ("F47AC10B-58CC-4372-A567-0E02B2C3D479".into(), uuid.clone()),
            ("f47ac10b58cc4372a5670e02b2c3d479".into(), uuid),
            (hex.to_owned(), app.clone()),
            (hex.to_uppercase(), app.clone()),
            (format!("0x{hex}"), app.clone()),
            (format!("app_{hex}"), app.clone()),
            (format!("app_id_{hex}"), app),
            (format!("instance_{hex}"), CvmIdentifier::Instance(hex.parse().unwrap())),
            ("my-app-01".into(), CvmIdentifier::Name("my-app-01".into())),
            ("9".repeat(30), CvmIdentifier::Nothing),
            ("cvm_nothing!".into(), CvmIdentifier::Nothing),
            ("instance_1".into(), CvmIdentifier::Nothing),
            ("x".repeat(64), CvmIdentifier::Nothing),
            ("web\u{0}app".into(), CvmIdentifier::Nothing),
            (String::new(), CvmIdentifier::Nothing),
        ] {
            assert_eq!(id(&text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_valid_name_is_read_back_as_that_name(name in "[a-zA-Z]([a-zA-Z0-9]|-[a-zA-Z0-9]){4,30}") {
            if let Ok(name) = name.parse::<CvmName>() {
                prop_assert_eq!(name.as_str().parse(), Ok(CvmIdentifier::Name(name.as_str().to_owned())));
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _: Result<_, _> = text.parse::<CvmIdentifier>();
            let _: Result<_, _> = text.parse::<CvmName>();
        }
    }
}
