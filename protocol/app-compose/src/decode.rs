//! Reading JSON that people and programs outside wrote.
//!
//! A derived deserialiser stops at the first fault and names its place only in words. Here every fault
//! is collected with the exact path of the member, so that one answer tells a caller all there is to
//! correct. Rules for every document: unknown members are ignored, null equals absent, a number with a
//! zero fraction is an integer, and `0`/`1` are booleans.

use std::fmt::Display;
use std::str::FromStr;

use serde_json::{Map, Value};

/// Most faults that are collected from one document; further ones are dropped.
pub const MAX_FAULTS: usize = 50;
/// Most elements of any list.
pub const MAX_LIST: usize = 1_000;

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Path of the member; list positions are decimal texts.
    pub loc: Vec<String>,
    /// What is wrong, for people.
    pub msg: String,
    /// Kind of fault, for programs; the names are those of the public interface.
    pub kind: &'static str,
}

/// Where the texts come from, which decides what a text may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A JSON document: a text is a text.
    Json,
    /// A query string: everything is a text, so numbers and booleans are read from texts and a single
    /// value is a list of one.
    Query,
}

/// Collects the faults of one document and knows the place that is being read.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    loc: Vec<String>,
    faults: Vec<Fault>,
}

impl Reader {
    /// Starts at `root`, the first elements of every fault's path (such as `body`).
    #[must_use]
    pub fn new(source: Source, root: &[&str]) -> Self {
        Self { source, loc: root.iter().map(ToString::to_string).collect(), faults: Vec::new() }
    }

    /// Notes a fault at the current place.
    pub fn fault(&mut self, kind: &'static str, msg: impl Into<String>) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(Fault { loc: self.loc.clone(), msg: msg.into(), kind });
        }
    }

    /// Reads a value one level further in.
    pub fn at<T>(&mut self, key: impl Into<String>, read: impl FnOnce(&mut Self) -> T) -> T {
        self.loc.push(key.into());
        let result = read(self);
        self.loc.pop();
        result
    }

    /// Reads a member under the first of its names that is present and not null.
    pub fn member<T: Decode>(
        &mut self,
        object: &Map<String, Value>,
        names: &[&str],
        default: Option<T>,
    ) -> Option<T> {
        let present = names
            .iter()
            .find_map(|name| object.get(*name).filter(|value| !value.is_null()).map(|value| (*name, value)));
        match (present, default) {
            (Some((name, value)), _) => self.at(name, |reader| T::decode(value, reader)),
            (None, Some(default)) => Some(default),
            (None, None) => T::absent().or_else(|| {
                let name = names.first().copied().unwrap_or_default();
                self.at(name, |reader| reader.fault("missing", "Field required"));
                None
            }),
        }
    }

    /// The result if nothing was wrong anywhere, else all faults.
    pub fn finish<T>(self, result: Option<T>) -> Result<T, Vec<Fault>> {
        match result {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => Err(self.faults),
        }
    }

    fn single<'v>(&self, value: &'v Value) -> &'v Value {
        match (self.source, value) {
            (Source::Query, Value::Array(values)) => values.last().unwrap_or(value),
            _ => value,
        }
    }

    fn text<'v>(&self, value: &'v Value) -> Option<&'v str> {
        if self.source == Source::Query { value.as_str() } else { None }
    }
}

/// A type that can be read from JSON, noting faults instead of returning them.
pub trait Decode: Sized {
    /// Reads `value`, which is never null. `None` exactly when a fault was noted.
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self>;

    /// What an absent member means; `None` if the member is required.
    #[must_use]
    fn absent() -> Option<Self> {
        None
    }
}

/// Reads a whole document; `root` begins the path of every fault.
pub fn decode<T: Decode>(value: &Value, source: Source, root: &[&str]) -> Result<T, Vec<Fault>> {
    let mut reader = Reader::new(source, root);
    let result = T::decode(value, &mut reader);
    reader.finish(result)
}

/// Reads a text through its [`FromStr`], turning its error into a fault.
pub fn parsed<T>(value: &Value, reader: &mut Reader) -> Option<T>
where
    T: FromStr<Err: Display>,
{
    let text = String::decode(value, reader)?;
    text.parse().map_err(|error: T::Err| reader.fault("value_error", error.to_string())).ok()
}

impl<T: Decode> Decode for Option<T> {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        T::decode(value, reader).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl Decode for String {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        let text = reader.single(value).as_str().map(str::to_owned);
        if text.is_none() {
            reader.fault("string_type", "Input should be a valid string");
        }
        text
    }
}

impl Decode for bool {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        let value = reader.single(value);
        let flag = match value {
            Value::Bool(flag) => Some(*flag),
            Value::Number(number) => [(0, false), (1, true)]
                .into_iter()
                .find_map(|(digit, flag)| (number.as_i64() == Some(digit)).then_some(flag)),
            _ => reader.text(value).and_then(|text| match text.to_ascii_lowercase().as_str() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            }),
        };
        if flag.is_none() {
            reader.fault("bool_type", "Input should be a valid boolean");
        }
        flag
    }
}

impl Decode for i64 {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        let value = reader.single(value);
        let number = match value {
            Value::Number(number) => number.as_i64().or_else(|| integral(number.as_f64()?)),
            _ => reader.text(value).and_then(|text| text.parse().ok()),
        };
        if number.is_none() {
            let (kind, msg) = match value.as_f64() {
                Some(float) if float.fract() != 0.0 => FRACTION,
                _ => ("int_type", "Input should be a valid integer"),
            };
            reader.fault(kind, msg);
        }
        number
    }
}

const FRACTION: (&str, &str) =
    ("int_from_float", "Input should be a valid integer, got a number with a fractional part");

/// The integer that a float stands for, if it stands for one exactly.
fn integral(number: f64) -> Option<i64> {
    /// Above this, neighbouring integers are the same float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "the range and the zero fraction are checked")]
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

impl Decode for u32 {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        let number = i64::decode(value, reader)?;
        let number = u32::try_from(number);
        if number.is_err() {
            reader.fault("out_of_range", format!("Input should be from 0 to {}", u32::MAX));
        }
        number.ok()
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        let one = std::slice::from_ref(value);
        let values = match (value, reader.source) {
            (Value::Array(values), _) => values,
            (_, Source::Query) => one,
            _ => {
                reader.fault("list_type", "Input should be a valid list");
                return None;
            }
        };
        if values.len() > MAX_LIST {
            reader.fault("too_long", format!("List should have at most {MAX_LIST} items"));
            return None;
        }
        let items = values
            .iter()
            .enumerate()
            .map(|(index, value)| reader.at(index.to_string(), |reader| T::decode(value, reader)));
        // Not straight into an Option: that would stop at the first faulty element.
        items.collect::<Vec<_>>().into_iter().collect()
    }
}

impl Decode for Map<String, Value> {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        object(value, reader).cloned()
    }
}

/// The members of an object.
pub fn object<'v>(value: &'v Value, reader: &mut Reader) -> Option<&'v Map<String, Value>> {
    let object = value.as_object();
    if object.is_none() {
        reader.fault("model_attributes_type", "Input should be a valid dictionary or object");
    }
    object
}

/// Declares a structure together with the way it is read from JSON.
///
/// `name: Type` is a required member unless the type is an `Option`; `name: Type = default` gives what
/// an absent one means; `name["other"]: …` lists further names, read when the first is absent.
#[macro_export]
macro_rules! members {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[$field_meta:meta])*
                pub $field:ident $([$($alias:literal),+])? : $type:ty $(= $default:expr)?
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $crate::decode::Decode for $name {
            fn decode(value: &::serde_json::Value, reader: &mut $crate::decode::Reader) -> Option<Self> {
                let object = $crate::decode::object(value, reader)?;
                $(
                    let $field = reader.member::<$type>(
                        object,
                        &[stringify!($field) $($(, $alias)+)?],
                        $crate::members!(@default $($default)?),
                    );
                )*
                Some(Self { $($field: $field?,)* })
            }
        }
    };
    (@default) => { None };
    (@default $default:expr) => { Some($default) };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    members! {
        /// A document of the tests.
        #[derive(Debug, PartialEq)]
        #[expect(unreachable_pub, reason = "the macro declares public structures")]
        pub struct Sample {
            /// Required.
            pub name: String,
            /// With another name.
            pub node_id["teepod_id"]: Option<i64>,
            /// With a default.
            pub flag: bool = true,
            /// A list.
            pub items: Vec<u32> = vec![7],
        }
    }

    fn read(value: &Value) -> Result<Sample, Vec<Fault>> {
        decode(value, Source::Json, &["body"])
    }

    #[test]
    fn reads_defaults_other_names_nulls_and_floats() {
        let sample = read(&json!({"name": "x", "node_id": null, "teepod_id": 2.0, "flag": 0, "more": {}}));
        let expected = Sample { name: "x".into(), node_id: Some(2), flag: false, items: vec![7] };
        assert_eq!(sample, Ok(expected));
    }

    #[test]
    fn collects_every_fault_with_its_place() {
        let faults = read(&json!({"teepod_id": 1.5, "flag": "no", "items": [1, -1, "2"]})).unwrap_err();
        let places: Vec<_> = faults.iter().map(|fault| (fault.loc.join("."), fault.kind)).collect();
        let expected = [
            ("body.name", "missing"),
            ("body.teepod_id", "int_from_float"),
            ("body.flag", "bool_type"),
            ("body.items.1", "out_of_range"),
            ("body.items.2", "int_type"),
        ];
        assert_eq!(places, expected.map(|(place, kind)| (place.to_owned(), kind)));
    }

    #[test]
    fn query_texts_stand_for_numbers_and_lists() {
        let value = json!({"name": "x", "node_id": ["1", "2"], "flag": "False", "items": "3"});
        let sample: Sample = decode(&value, Source::Query, &["query"]).unwrap();
        assert_eq!(sample, Sample { name: "x".into(), node_id: Some(2), flag: false, items: vec![3] });
    }

    #[test]
    fn a_flood_of_faults_is_cut() {
        let value = json!({"name": "x", "items": vec!["x"; MAX_LIST]});
        assert_eq!(read(&value).unwrap_err().len(), MAX_FAULTS);
        let value = json!({"name": "x", "items": vec![0; MAX_LIST + 1]});
        assert_eq!(read(&value).unwrap_err().len(), 1);
    }
}
