//! Usage rows as the journal and the database have them: who they are about, and a Protocol Buffers message, which is half as
//! long as JSON. Rows of versions before layout six are JSON, which no message begins like.

use bytes::Bytes;
use prost::Message;
use rust_decimal::Decimal;
use serde_json::value::RawValue;

use super::{Row, StoreError};
use crate::admission::KeyHash;
use crate::config::Pricing;

/// Longest `usage` of an upstream that is kept, in bytes. Its counts are kept anyway.
const MAX_USAGE: usize = 16 << 10;
/// Longest text of a row, in bytes.
const MAX_TEXT: usize = 512;
/// What JSON begins with. A message would begin with it for a group of the number 15, which is left out below.
const JSON: u8 = b'{';

/// A row as it is kept.
pub(super) fn row_bytes(key: KeyHash, row: Row) -> Bytes {
    let mut bytes = Vec::new();
    put_row(&mut bytes, key, row);
    bytes.into()
}

/// Appends a row as it is kept.
pub(super) fn put_row(out: &mut Vec<u8>, key: KeyHash, mut row: Row) {
    row.usage = row.usage.filter(|usage| usage.get().len() <= MAX_USAGE);
    let texts = [Some(&mut row.request_model), row.error_message.as_mut(), row.selected_route_id.as_mut()];
    for text in texts.into_iter().flatten() {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
    }
    out.extend_from_slice(&key.0);
    // A vector has room for anything: this cannot fail.
    let _ = RowMessage::from(row).encode(out);
}

/// A row that was kept.
pub(super) fn parse_row(bytes: &[u8]) -> Result<(KeyHash, Row), StoreError> {
    let parsed = bytes.split_first_chunk().and_then(|(key, row)| {
        let row = match row.first() {
            Some(&JSON) => serde_json::from_slice(row).ok(),
            _ => RowMessage::decode(row).ok().and_then(RowMessage::row),
        };
        Some((KeyHash(*key), row?))
    });
    parsed.ok_or_else(damaged)
}

/// When a row's request ended.
pub(super) fn row_ended_at(bytes: &[u8]) -> Result<u64, StoreError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Ended<'a> {
        ended_at: u64,
        #[serde(borrow, default, rename = "usage")]
        _usage: Option<&'a RawValue>,
    }
    let ended_at = bytes.split_first_chunk::<32>().and_then(|(_, row)| match row.first()? {
        &JSON => serde_json::from_slice::<Ended<'_>>(row).ok().map(|row| row.ended_at),
        _ => EndMessage::decode(row).ok()?.ended_at,
    });
    ended_at.ok_or_else(damaged)
}

fn damaged() -> StoreError {
    StoreError::damaged("a usage row")
}

/// A [`Row`]. A tag is never used for another member. The last one is in every row: one that lacks its end is none; and the last
/// byte of its number is below 0x80, so that no row ends as [room](super::frame::ROOM) does.
#[derive(Clone, PartialEq, Message)]
struct RowMessage {
    #[prost(string, tag = "1")]
    request_id: String,
    #[prost(string, tag = "2")]
    endpoint: String,
    #[prost(uint32, tag = "3")]
    status: u32,
    #[prost(uint64, tag = "4")]
    duration_ms: u64,
    #[prost(uint64, optional, tag = "5")]
    ttft_ms: Option<u64>,
    #[prost(bool, tag = "6")]
    is_streaming: bool,
    #[prost(uint32, tag = "7")]
    attempt_index: u32,
    #[prost(string, optional, tag = "8")]
    selected_route_id: Option<String>,
    #[prost(string, tag = "9")]
    request_model: String,
    /// JSON.
    #[prost(string, optional, tag = "10")]
    usage: Option<String>,
    #[prost(uint64, tag = "11")]
    prompt_tokens: u64,
    #[prost(uint64, tag = "12")]
    completion_tokens: u64,
    #[prost(message, optional, tag = "13")]
    cost: Option<DecimalMessage>,
    #[prost(message, optional, tag = "14")]
    pricing: Option<PricingMessage>,
    #[prost(string, optional, tag = "16")]
    spend_mode: Option<String>,
    #[prost(string, optional, tag = "17")]
    user_id: Option<String>,
    #[prost(string, optional, tag = "18")]
    virtual_key_id: Option<String>,
    #[prost(string, optional, tag = "19")]
    error_source: Option<String>,
    #[prost(string, optional, tag = "20")]
    error_message: Option<String>,
    #[prost(string, optional, tag = "21")]
    prefix_hash: Option<String>,
    #[prost(bool, tag = "22")]
    is_last: bool,
    #[prost(uint64, optional, tag = "23")]
    ended_at: Option<u64>,
}

/// Of a [`RowMessage`], the time.
#[derive(Clone, PartialEq, Message)]
struct EndMessage {
    #[prost(uint64, optional, tag = "23")]
    ended_at: Option<u64>,
}

/// A [`Decimal`], as [`Decimal::serialize`] has it, in two halves, little-endian.
#[derive(Clone, Copy, PartialEq, Message)]
struct DecimalMessage {
    #[prost(fixed64, tag = "1")]
    first: u64,
    #[prost(fixed64, tag = "2")]
    second: u64,
}

/// [`Pricing`].
#[derive(Clone, Copy, PartialEq, Message)]
struct PricingMessage {
    #[prost(message, optional, tag = "1")]
    prompt: Option<DecimalMessage>,
    #[prost(message, optional, tag = "2")]
    completion: Option<DecimalMessage>,
    #[prost(message, optional, tag = "3")]
    cache_read: Option<DecimalMessage>,
    #[prost(message, optional, tag = "4")]
    cache_creation: Option<DecimalMessage>,
}

impl From<Row> for RowMessage {
    fn from(row: Row) -> Self {
        Self {
            request_id: row.request_id,
            endpoint: row.endpoint,
            status: row.status.into(),
            duration_ms: row.duration_ms,
            ttft_ms: row.ttft_ms,
            is_streaming: row.is_streaming,
            attempt_index: row.attempt_index,
            selected_route_id: row.selected_route_id,
            request_model: row.request_model,
            usage: row.usage.map(|usage| Box::<str>::from(usage).into()),
            prompt_tokens: row.prompt_tokens,
            completion_tokens: row.completion_tokens,
            cost: Some(row.cost.into()),
            pricing: row.pricing.map(PricingMessage::from),
            spend_mode: row.spend_mode,
            user_id: row.user_id,
            virtual_key_id: row.virtual_key_id,
            error_source: row.error_source,
            error_message: row.error_message,
            prefix_hash: row.prefix_hash,
            ended_at: Some(row.ended_at),
            is_last: row.is_last,
        }
    }
}

impl RowMessage {
    /// `None` for one that lacks its id, its cost or its time, which every row has.
    fn row(self) -> Option<Row> {
        if self.request_id.is_empty() {
            return None;
        }
        Some(Row {
            request_id: self.request_id,
            endpoint: self.endpoint,
            status: self.status.try_into().ok()?,
            duration_ms: self.duration_ms,
            ttft_ms: self.ttft_ms,
            is_streaming: self.is_streaming,
            attempt_index: self.attempt_index,
            selected_route_id: self.selected_route_id,
            request_model: self.request_model,
            usage: self.usage.map(RawValue::from_string).transpose().ok()?,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cost: self.cost?.into(),
            pricing: match self.pricing {
                Some(pricing) => Some(pricing.pricing()?),
                None => None,
            },
            spend_mode: self.spend_mode,
            user_id: self.user_id,
            virtual_key_id: self.virtual_key_id,
            error_source: self.error_source,
            error_message: self.error_message,
            prefix_hash: self.prefix_hash,
            ended_at: self.ended_at?,
            is_last: self.is_last,
        })
    }
}

impl From<Pricing> for PricingMessage {
    fn from(pricing: Pricing) -> Self {
        Self {
            prompt: Some(pricing.prompt.into()),
            completion: Some(pricing.completion.into()),
            cache_read: pricing.cache_read.map(DecimalMessage::from),
            cache_creation: pricing.cache_creation.map(DecimalMessage::from),
        }
    }
}

impl PricingMessage {
    fn pricing(self) -> Option<Pricing> {
        Some(Pricing {
            prompt: self.prompt?.into(),
            completion: self.completion?.into(),
            cache_read: self.cache_read.map(Decimal::from),
            cache_creation: self.cache_creation.map(Decimal::from),
        })
    }
}

impl From<Decimal> for DecimalMessage {
    fn from(decimal: Decimal) -> Self {
        let bits = u128::from_le_bytes(decimal.serialize());
        let half = |bits| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
        Self { first: half(bits), second: half(bits >> u64::BITS) }
    }
}

impl From<DecimalMessage> for Decimal {
    fn from(message: DecimalMessage) -> Self {
        let bits = u128::from(message.second) << u64::BITS | u128::from(message.first);
        Self::deserialize(bits.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::record::frame::ROOM;

    fn decimal() -> impl Strategy<Value = Decimal> {
        let most = Decimal::MAX.mantissa();
        (-most..=most, 0..=Decimal::MAX_SCALE)
            .prop_map(|(units, scale)| Decimal::from_i128_with_scale(units, scale))
    }

    fn pricing() -> impl Strategy<Value = Pricing> {
        (decimal(), decimal(), option::of(decimal()), option::of(decimal())).prop_map(
            |(prompt, completion, cache_read, cache_creation)| Pricing {
                prompt,
                completion,
                cache_read,
                cache_creation,
            },
        )
    }

    prop_compose! {
        fn row()(
            request_id in ".+",
            [endpoint, request_model] in any::<[String; 2]>(),
            texts in any::<[Option<String>; 7]>(),
            (status, attempt_index) in any::<(u16, u32)>(),
            (is_streaming, is_last) in any::<(bool, bool)>(),
            numbers in any::<[u64; 4]>(),
            ttft_ms in any::<Option<u64>>(),
            usage in any::<Option<u32>>(),
            cost in decimal(),
            pricing in option::of(pricing()),
        ) -> Row {
            let [duration_ms, prompt_tokens, completion_tokens, ended_at] = numbers;
            let [
                selected_route_id,
                spend_mode,
                user_id,
                virtual_key_id,
                error_source,
                error_message,
                prefix_hash,
            ] = texts;
            let usage = usage.map(|count| RawValue::from_string(format!("{{ \"count\": {count} }}")).unwrap());
            Row {
                request_id,
                endpoint,
                status,
                duration_ms,
                ttft_ms,
                is_streaming,
                attempt_index,
                selected_route_id,
                request_model,
                usage,
                prompt_tokens,
                completion_tokens,
                cost,
                pricing,
                spend_mode,
                user_id,
                virtual_key_id,
                error_source,
                error_message,
                prefix_hash,
                ended_at,
                is_last,
            }
        }
    }

    const KEY: KeyHash = KeyHash([7; 32]);

    fn json(row: &Row) -> String {
        serde_json::to_string(row).unwrap()
    }

    /// As it was kept before layout six.
    fn former(key: KeyHash, row: &Row) -> Vec<u8> {
        [&key.0[..], json(row).as_bytes()].concat()
    }

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_kept(key in any::<[u8; 32]>(), row in row()) {
            let key = KeyHash(key);
            let (now, before) = (row_bytes(key, row.clone()), former(key, &row));
            for bytes in [&now[..], &before] {
                let (owner, read) = parse_row(bytes).unwrap();
                prop_assert_eq!((owner, json(&read)), (key, json(&row)));
                prop_assert_eq!(row_ended_at(bytes).unwrap(), row.ended_at);
            }
            prop_assert_ne!(now.last(), Some(&ROOM));
        }

        #[test]
        fn what_is_no_row_is_none(
            any in any::<Vec<u8>>(),
            row in row(),
            at in any::<prop::sample::Index>(),
            change in 1..=u8::MAX,
        ) {
            let mut bytes = Vec::from(row_bytes(KEY, row));
            let at = at.index(bytes.len());
            // Whatever comes out: nothing may panic.
            bytes[at] ^= change;
            for bytes in [&bytes[..], &[&KEY.0[..], &any].concat(), &any] {
                let _ = (parse_row(bytes), row_ended_at(bytes));
            }
            bytes.truncate(at);
            prop_assert!(parse_row(&bytes).is_err(), "a row that lacks its end lacks what every row has");
        }
    }

    /// Rows that are kept somewhere: whatever changes, these bytes stay these rows.
    #[test]
    fn what_was_kept_can_be_read() {
        let all = json!({
            "requestId": "req_1",
            "endpoint": "/v1/chat/completions",
            "status": 502,
            "durationMs": 300,
            "ttftMs": 20,
            "isStreaming": true,
            "attemptIndex": 1,
            "selectedRouteId": "route",
            "requestModel": "model",
            "usage": {"prompt_tokens": 3},
            "promptTokens": 3,
            "completionTokens": 4,
            "cost": "79228162514264337593543950335",
            "pricing": {"prompt": "0.000001", "completion": "0.02", "cache_read": "3", "cache_creation": "-4.5"},
            "spendMode": "mode",
            "userId": "user",
            "virtualKeyId": "key",
            "errorSource": "upstream",
            "errorMessage": "it broke",
            "prefixHash": "hash",
            "endedAt": 1_800_000_000,
            "isLast": true,
        });
        let few = json!({
            "requestId": "r",
            "endpoint": "",
            "status": 0,
            "durationMs": 0,
            "isStreaming": false,
            "attemptIndex": 0,
            "selectedRouteId": null,
            "requestModel": "",
            "usage": null,
            "promptTokens": 0,
            "completionTokens": 0,
            "cost": "0",
            "pricing": null,
            "endedAt": 0,
            "isLast": false,
        });
        let rows = [all, few].map(|row| {
            let kept = row_bytes(KEY, serde_json::from_value(row.clone()).unwrap());
            assert_eq!(serde_json::to_value(parse_row(&kept).unwrap().1).unwrap(), row);
            hex::encode(&kept[KEY.0.len()..])
        });
        let [all, few] = rows;
        assert_eq!(
            all,
            "0a057265715f3112142f76312f636861742f636f6d706c6574696f6e7318f60320ac022814300138014205726f757465\
             4a056d6f64656c52137b2270726f6d70745f746f6b656e73223a337d580360046a120900000000ffffffff11ffffffff\
             ffffffff722c0a0909000006000100000012090900000200020000001a09090000000003000000220909000001802d00\
             00008201046d6f64658a0104757365729201036b65799a0108757073747265616da2010869742062726f6b65aa010468\
             617368b00101b80180a4a7da06"
        );
        assert_eq!(few, "0a01726a00b80100");
    }

    #[test]
    fn rows_are_short() {
        let pricing =
            Pricing { prompt: Decimal::new(1, 6), completion: Decimal::new(2, 6), ..Pricing::default() };
        let id = "req_0123456789abcdef0123456789abcdef";
        let usual = Row {
            duration_ms: 1200,
            selected_route_id: Some("upstream/model".to_owned()),
            prompt_tokens: 100,
            completion_tokens: 200,
            cost: Decimal::new(500, 6),
            pricing: Some(pricing),
            is_last: true,
            ..Row::refused(id, "/v1/chat/completions", "model", 200, 1_800_000_000)
        };
        let (now, before) = (row_bytes(KEY, usual.clone()).len(), former(KEY, &usual).len());
        assert!(2 * now < before, "{now} bytes instead of {before}");
    }
}
