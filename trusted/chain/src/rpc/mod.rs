//! JSON-RPC 2.0 in batches.

pub(crate) mod endpoint;
#[cfg(test)]
mod tests;
mod transport;
pub(crate) mod wire;

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::Failure;

/// Most calls of one batch; more than any question needs.
pub(crate) const MAX_BATCH: usize = 32;
/// JSON-RPC errors that mean "too many requests".
const LIMIT_CODES: [i64; 2] = [-32005, 429];

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: &'static str,
    params: Value,
}

impl Call {
    /// `method` with its parameters, an array.
    pub(crate) const fn new(method: &'static str, params: Value) -> Self {
        Self { method, params }
    }

    fn request(&self, id: usize) -> Request<'_> {
        Request { jsonrpc: "2.0", id, method: self.method, params: &self.params }
    }
}

/// What a node says is wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RpcError {
    /// Its code.
    pub(crate) code: i64,
    /// As it came; an [`Endpoint`](endpoint::Endpoint) makes it fit for people.
    pub(crate) message: String,
    /// What the contract said when it reverted.
    pub(crate) data: Option<Vec<u8>>,
}

/// Whether a node that answers with this code wants fewer requests.
fn is_limit(code: i64) -> bool {
    LIMIT_CODES.contains(&code)
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::Rpc { code: error.code, message: error.message }
    }
}

/// The answer to one call: the text of a JSON value.
pub(crate) type Item = Result<String, RpcError>;

#[derive(Serialize)]
struct Request<'a> {
    jsonrpc: &'static str,
    id: usize,
    method: &'static str,
    params: &'a Value,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(default)]
    id: Option<Value>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<ErrorObject>,
}

impl Response<'_> {
    fn item(self) -> Item {
        match self.error {
            Some(error) => Err(error.into()),
            None => Ok(self.result.map_or("null", RawValue::get).to_owned()),
        }
    }
}

#[derive(Deserialize)]
struct ErrorObject {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Option<Value>,
}

impl From<ErrorObject> for RpcError {
    fn from(error: ErrorObject) -> Self {
        let data = error.data.as_ref().and_then(Value::as_str).and_then(|text| wire::bytes(text).ok());
        Self { code: error.code, message: error.message, data }
    }
}

/// The body of a request with `calls`.
pub(crate) fn encode(calls: &[Call]) -> Result<Vec<u8>, Failure> {
    let requests: Vec<Request<'_>> = calls.iter().enumerate().map(|(id, call)| call.request(id)).collect();
    serde_json::to_vec(&requests).map_err(|_| Failure::Garbage("the request"))
}

/// The body of a request with one call that is no batch.
pub(crate) fn encode_one(call: &Call) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(&call.request(0)).map_err(|_| Failure::Garbage("the request"))
}

/// The answers in `body` to `count` calls, in the order of the calls: each exactly once.
pub(crate) fn decode(body: &[u8], count: usize) -> Result<Vec<Item>, Failure> {
    let is_object = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if is_object {
        // The answer to one call, or what is wrong with the whole batch.
        let response: Response<'_> = read(body)?;
        return match response.item() {
            Err(error) => Err(error.into()),
            Ok(item) if count == 1 => Ok(vec![Ok(item)]),
            Ok(_) => Err(Failure::Garbage("no batch")),
        };
    }
    let Bounded(responses) = read::<Bounded<Response<'_>, MAX_BATCH>>(body)?;
    let mut items: Vec<Option<Item>> = (0..count).map(|_| None).collect();
    for response in responses {
        let id = response.id.as_ref().and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
        let slot = id.and_then(|id| items.get_mut(id)).ok_or(Failure::Garbage("an answer to no question"))?;
        if slot.replace(response.item()).is_some() {
            return Err(Failure::Garbage("two answers to one question"));
        }
    }
    items.into_iter().collect::<Option<_>>().ok_or(Failure::Garbage("an answer is missing"))
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|_| Failure::Garbage("not JSON-RPC"))
}

/// A list of at most `LIMIT` elements; a longer one is an error before it takes memory.
#[derive(Debug)]
pub(crate) struct Bounded<T, const LIMIT: usize>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>, const LIMIT: usize> Deserialize<'de> for Bounded<T, LIMIT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedVisitor::<T, LIMIT>(std::marker::PhantomData))
    }
}

struct BoundedVisitor<T, const LIMIT: usize>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>, const LIMIT: usize> Visitor<'de> for BoundedVisitor<T, LIMIT> {
    type Value = Bounded<T, LIMIT>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {LIMIT} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while let Some(element) = elements.next_element()? {
            if kept.len() == LIMIT {
                return Err(serde::de::Error::invalid_length(LIMIT, &self));
            }
            kept.push(element);
        }
        Ok(Bounded(kept))
    }
}
