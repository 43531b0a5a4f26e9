//! The `provider` member: which routes a request may take.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Body, Change};
use crate::error::GatewayError;

const MEMBER: &str = "provider";
/// Most names in one of its lists.
const MAX_NAMES: usize = 100;
/// Most bytes of it: a control plane gets it as it is.
const MAX_BYTES: usize = 16 << 10;

/// What orders the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// Cheapest first.
    Price,
    /// Most tokens in a second first.
    Throughput,
    /// Quickest first byte first.
    Latency,
}

/// Whether a provider may keep what it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataCollection {
    /// It may.
    #[default]
    Allow,
    /// Only routes that keep nothing.
    Deny,
}

/// Upper prices, in the installation's currency per million tokens.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct MaxPrice {
    /// Of what is sent.
    pub prompt: Option<serde_json::Number>,
    /// Of what comes back.
    pub completion: Option<serde_json::Number>,
}

/// Which routes a request may take.
#[expect(clippy::struct_excessive_bools, reason = "they are the interface's own members, each for itself")]
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Constraints {
    /// Only routes with zero data retention.
    pub zdr: bool,
    /// Only these providers, where there are any.
    pub only: Vec<String>,
    /// These first, in this order.
    pub order: Vec<String>,
    /// Not these.
    pub ignore: Vec<String>,
    /// No other route than the first, or those in `order`.
    pub no_fallbacks: bool,
    /// Only routes that know every parameter of the request.
    pub require_parameters: bool,
    /// Whether a provider may keep what it gets.
    pub data_collection: DataCollection,
    /// What orders the candidates.
    pub sort: Option<Sort>,
    /// What it may cost.
    pub max_price: MaxPrice,
    /// Only these quantizations, where there are any.
    pub quantizations: Vec<String>,
    /// Only routes that prove what they are.
    pub verified: bool,
    /// Only through these sessions, where there are any.
    pub session_ids: Vec<String>,
}

impl Constraints {
    /// Reads the `provider` member. Unknown members are passed over, but for those that begin with `aci_`: who
    /// writes one relies on it. So those, `zdr` and `data_collection` may not be `null`, which elsewhere is as good as absent.
    pub fn of(body: &Body<'_>) -> Result<Self, GatewayError> {
        let Some(raw) = body.raw(MEMBER) else { return Ok(Self::default()) };
        if raw.get().len() > MAX_BYTES {
            let message = format!("'provider' may have at most {MAX_BYTES} bytes");
            return Err(GatewayError::parameter(MEMBER, message));
        }
        let object = object(raw)?;
        for (name, value) in object.members() {
            if name.starts_with("aci_") && !is_known_aci(name) {
                return Err(wrong(name, "is not known; known are aci_verified and aci_session_ids"));
            }
            if (is_known_aci(name) || matches!(name, "zdr" | "data_collection")) && value.get() == "null" {
                return Err(wrong(name, "may not be null: leave it out to demand nothing"));
            }
        }
        let session_ids = session_ids(&object)?;
        let verified: Option<bool> = member(&object, "aci_verified", "must be true or false")?;
        if verified == Some(false) && !session_ids.is_empty() {
            return Err(wrong("aci_verified", "cannot be false together with aci_session_ids"));
        }
        let flag = |name| member::<bool>(&object, name, "must be true or false");
        Ok(Self {
            zdr: flag("zdr")?.unwrap_or(false),
            only: names(&object, "only")?,
            order: names(&object, "order")?,
            ignore: names(&object, "ignore")?,
            no_fallbacks: !flag("allow_fallbacks")?.unwrap_or(true),
            require_parameters: flag("require_parameters")?.unwrap_or(false),
            data_collection: member(&object, "data_collection", "must be 'allow' or 'deny'")?
                .unwrap_or_default(),
            sort: member(&object, "sort", "must be 'price', 'throughput' or 'latency'")?,
            max_price: member(
                &object,
                "max_price",
                "must be an object with the numbers 'prompt' and 'completion'",
            )?
            .unwrap_or_default(),
            quantizations: names(&object, "quantizations")?,
            verified: verified.unwrap_or(false) || !session_ids.is_empty(),
            session_ids,
        })
    }

    /// What becomes of the member on the way out: the gateway consumes it.
    #[must_use]
    pub const fn change() -> (&'static str, Change) {
        (MEMBER, Change::Remove)
    }
}

fn object(raw: &RawValue) -> Result<Body<'_>, GatewayError> {
    Body::parse(raw.get().as_bytes())
        .map_err(|_| GatewayError::parameter(MEMBER, "'provider' must be an object with each member once"))
}

fn is_known_aci(name: &str) -> bool {
    matches!(name, "aci_verified" | "aci_session_ids")
}

fn wrong(name: &str, what: &str) -> GatewayError {
    GatewayError::parameter(format!("{MEMBER}.{name}"), format!("'{MEMBER}.{name}' {what}"))
}

fn member<T: DeserializeOwned>(object: &Body<'_>, name: &str, rule: &str) -> Result<Option<T>, GatewayError> {
    object.get(name, "").map_err(|_| wrong(name, rule))
}

fn names(object: &Body<'_>, name: &str) -> Result<Vec<String>, GatewayError> {
    let names: Vec<String> = member(object, name, "must be an array of strings")?.unwrap_or_default();
    if names.len() > MAX_NAMES {
        return Err(wrong(name, &format!("may have at most {MAX_NAMES} entries")));
    }
    Ok(names)
}

fn session_ids(object: &Body<'_>) -> Result<Vec<String>, GatewayError> {
    const RULE: &str = "must be an array of 1 to 100 session ids of 64 lower-case hex digits";
    let Some(ids): Option<Vec<String>> = member(object, "aci_session_ids", RULE)? else {
        return Ok(Vec::new());
    };
    let is_id =
        |id: &String| id.len() == 64 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if (1..=MAX_NAMES).contains(&ids.len()) && ids.iter().all(is_id) {
        Ok(ids)
    } else {
        Err(wrong("aci_session_ids", RULE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(provider: &str) -> Result<Constraints, GatewayError> {
        let body = format!(r#"{{"model":"m","provider":{provider}}}"#);
        Constraints::of(&Body::parse(body.as_bytes()).unwrap())
    }

    #[test]
    fn nothing_constrains_by_itself() {
        for provider in ["null", "{}", r#"{"unknown":[1]}"#, r#"{"only":null,"allow_fallbacks":true}"#] {
            assert_eq!(read(provider).unwrap(), Constraints::default(), "{provider}");
        }
        assert_eq!(Constraints::of(&Body::parse(b"{}").unwrap()).unwrap(), Constraints::default());
    }

    #[test]
    fn each_member_is_read() {
        let id = "ab".repeat(32);
        let read = read(&format!(
            r#"{{"zdr":true,"only":["a"],"order":["b","a"],"ignore":["c"],"allow_fallbacks":false,
                "require_parameters":true,"data_collection":"deny","sort":"latency",
                "max_price":{{"prompt":0.5}},"quantizations":["fp8"],"aci_session_ids":["{id}"]}}"#
        ))
        .unwrap();
        assert_eq!(
            read,
            Constraints {
                zdr: true,
                only: vec!["a".into()],
                order: vec!["b".into(), "a".into()],
                ignore: vec!["c".into()],
                no_fallbacks: true,
                require_parameters: true,
                data_collection: DataCollection::Deny,
                sort: Some(Sort::Latency),
                max_price: MaxPrice { prompt: serde_json::Number::from_f64(0.5), completion: None },
                quantizations: vec!["fp8".into()],
                verified: true,
                session_ids: vec![id],
            }
        );
    }

    #[test]
    fn wrong_members_are_named() {
        for (provider, param) in [
            ("[]", "provider"),
            ("\"x\"", "provider"),
            (r#"{"zdr":true,"zdr":false}"#, "provider"),
            (&format!(r#"{{"unknown":"{}"}}"#, "x".repeat(MAX_BYTES)), "provider"),
            (r#"{"zdr":"true"}"#, "provider.zdr"),
            (r#"{"zdr":1}"#, "provider.zdr"),
            (r#"{"only":"a"}"#, "provider.only"),
            (r#"{"order":[1]}"#, "provider.order"),
            (r#"{"allow_fallbacks":"no"}"#, "provider.allow_fallbacks"),
            (r#"{"data_collection":"maybe"}"#, "provider.data_collection"),
            (r#"{"sort":"random"}"#, "provider.sort"),
            (r#"{"max_price":3}"#, "provider.max_price"),
            (r#"{"zdr":null}"#, "provider.zdr"),
            (r#"{"data_collection":null}"#, "provider.data_collection"),
            (r#"{"aci_other":1}"#, "provider.aci_other"),
            (r#"{"aci_other":null}"#, "provider.aci_other"),
            (r#"{"aci_verified":null}"#, "provider.aci_verified"),
            (r#"{"aci_session_ids":null}"#, "provider.aci_session_ids"),
            (r#"{"aci_verified":"yes"}"#, "provider.aci_verified"),
            (r#"{"aci_session_ids":[]}"#, "provider.aci_session_ids"),
            (r#"{"aci_session_ids":["AB"]}"#, "provider.aci_session_ids"),
        ] {
            let error = read(provider).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{provider}: {error}");
            assert_eq!(error.status(), 400);
        }
        let both = format!(r#"{{"aci_verified":false,"aci_session_ids":["{}"]}}"#, "0".repeat(64));
        assert_eq!(read(&both).unwrap_err().param.as_deref(), Some("provider.aci_verified"));
    }
}
