//! Amounts of money: exact decimals, never floats.

use std::fmt;
use std::str::FromStr;

use cloister_app_compose::decode::{Decode, Reader};
use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Decimals of the smallest amount.
const DECIMALS: usize = 9;
/// Digits before the point of the largest amount of a request.
const WHOLE_DIGITS: usize = 9;

/// An amount in a request: a decimal text such as `"12.50"`, or a JSON number. Below a thousand million, with at
/// most nine decimals; it may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(pub Decimal);

/// A text is no amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Input should be a decimal such as 12.50, below 1000000000 and with at most 9 decimals")]
pub struct NotAnAmount;

impl FromStr for Amount {
    type Err = NotAnAmount;

    fn from_str(text: &str) -> Result<Self, NotAnAmount> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number = |part: &str, most: usize| {
            (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(whole, WHOLE_DIGITS) || !is_number(fraction, DECIMALS) {
            return Err(NotAnAmount);
        }
        Decimal::from_str_exact(text).map(|amount| Self(amount.normalize())).map_err(|_| NotAnAmount)
    }
}

impl Decode for Amount {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        let text = match value {
            // The shortest text that is this number is the one that was written.
            Value::Number(number) => number.to_string(),
            _ => String::decode(value, reader)?,
        };
        let amount = text.parse();
        if amount.is_err() {
            reader.fault("value_error", NotAnAmount.to_string());
        }
        amount.ok()
    }
}

/// An amount that clients expect as a JSON number. It is written with all of its digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(pub Decimal);

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.normalize().fmt(f)
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The text of a decimal is a number of JSON.
        let number = RawValue::from_string(self.to_string()).map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        let text = number.to_string();
        let exact = Decimal::from_str(&text).or_else(|_| Decimal::from_scientific(&text));
        exact.map(Self).map_err(serde::de::Error::custom)
    }
}

/// An amount as decimal text, without zeros at its end.
#[must_use]
pub fn amount_text(amount: Decimal) -> String {
    amount.normalize().to_string()
}

#[cfg(test)]
mod tests {
    use cloister_app_compose::decode::{Source, decode};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_texts_or_numbers() {
        let read =
            |value: Value| decode::<Amount>(&value, Source::Json, &[]).map(|amount| amount.0.to_string());
        for (value, text) in [
            (json!("12.50"), "12.5"),
            (json!("-0.000000001"), "-0.000000001"),
            (json!(100), "100"),
            (json!(0.1), "0.1"),
            (json!("999999999.999999999"), "999999999.999999999"),
        ] {
            assert_eq!(read(value.clone()).unwrap(), text, "{value}");
        }
        for value in [
            json!("1e3"),
            json!(1e300),
            json!(""),
            json!("."),
            json!("1."),
            json!(".5"),
            json!("1,5"),
            json!("+1"),
            json!("--1"),
            json!("1_0"),
            json!("1000000000"),
            json!("0.0000000001"),
            json!(true),
            json!([]),
            json!("NaN"),
            json!(" 1"),
        ] {
            assert!(read(value.clone()).is_err(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn money_is_written_with_all_digits(units in any::<i64>(), scale in 0_u32..=9) {
            let money = Money(Decimal::new(units, scale));
            let text = serde_json::to_string(&money).unwrap();
            prop_assert_eq!(Decimal::from_str(&text).unwrap(), money.0);
        }

        #[test]
        fn what_a_double_holds_is_read_back(units in -9_999_999_999_999_i64..=9_999_999_999_999, scale in 0_u32..=9) {
            let money = Money(Decimal::new(units, scale));
            let text = serde_json::to_string(&money).unwrap();
            prop_assert_eq!(serde_json::from_str::<Money>(&text).unwrap(), money);
        }
    }
}
