//! An operator's list of prices, from JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rust_decimal::Decimal;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{ANY_PRODUCT, CPU_FAMILY, DECIMALS, GPU_FAMILY, PriceList, Size, SizeGpus};

/// Largest list, in bytes.
pub const MAX_FILE_BYTES: usize = 256 << 10;
/// Most sizes.
const MAX_SIZES: usize = 200;
/// Most products with a price.
const MAX_PRODUCTS: usize = 200;
/// Longest id of a size or a family, and longest product.
const MAX_ID: usize = 63;
/// Longest name.
const MAX_NAME: usize = 100;
/// Digits before the point of a price: nothing costs a million for an hour.
const MAX_WHOLE_DIGITS: usize = 6;
/// Bounds of what a size has, those of a request.
const VCPU: (u32, u32) = (1, 1024);
const MEMORY_MB: (u32, u32) = (256, 16 << 20);
const DISK_GB: (u32, u32) = (20, 1 << 20);
const GPUS: (u32, u32) = (1, 16);

/// Why a list of prices cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// Too large.
    #[error("the list has more than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// Not a list: what the parser found, and where.
    #[error("{0}")]
    Malformed(String),
    /// A list that cannot be meant.
    #[error("{0}")]
    Wrong(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFile {
    #[serde(default = "usd")]
    currency: String,
    sizes: Vec<SizeEntry>,
    storage_gb_hour: Price,
    vcpu_hour: Price,
    memory_gb_hour: Price,
    gpu_hour: Products,
}

fn usd() -> String {
    "USD".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeEntry {
    id: String,
    name: String,
    family: Option<String>,
    vcpu: u32,
    memory_mb: u32,
    disk_gb: u32,
    gpus: Option<GpuEntry>,
    hourly_rate: Price,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuEntry {
    count: u32,
    product: String,
}

/// A price for an hour, written as a string: JSON's numbers are not exact.
struct Price(Decimal);

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Price;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a price written as a string, such as \"0.058\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Price, E> {
                price(text).map(Price).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Digits, and after a point no more than the amounts of records have.
fn price(text: &str) -> Result<Decimal, String> {
    let shown: String = text.chars().take(40).collect();
    if text.starts_with('-') {
        return Err(format!("the price {shown:?} is negative"));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return Err(format!("{shown:?} is no price; write it such as \"0.058\""));
    }
    if whole.len() > MAX_WHOLE_DIGITS {
        return Err(format!("the price {shown:?} is a million or more for an hour"));
    }
    if fraction.len() > DECIMALS as usize {
        return Err(format!("the price {shown:?} has more than {DECIMALS} decimals"));
    }
    let exact = Decimal::from_str_exact(text).map_err(|_| format!("{shown:?} is no price"))?;
    Ok(exact.normalize())
}

/// Prices by product; a product that is listed twice is a mistake.
struct Products(BTreeMap<String, Decimal>);

impl<'de> Deserialize<'de> for Products {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Products;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of GPU products with their prices, such as {\"10de:2335\": \"3.5\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Products, A::Error> {
                let mut prices = BTreeMap::new();
                while let Some((product, Price(rate))) = map.next_entry::<String, Price>()? {
                    if product != ANY_PRODUCT && !is_id(&product) {
                        let product: String = product.chars().take(40).collect();
                        return Err(A::Error::custom(format!("{product:?} is no GPU product")));
                    }
                    if prices.len() >= MAX_PRODUCTS {
                        return Err(A::Error::custom(format!(
                            "gpu_hour has more than {MAX_PRODUCTS} products"
                        )));
                    }
                    if let Some((twice, _)) = prices.remove_entry(&product) {
                        return Err(A::Error::custom(format!("gpu_hour lists {twice} twice")));
                    }
                    prices.insert(product, rate);
                }
                Ok(Products(prices))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

pub(super) fn parse(text: &[u8]) -> Result<PriceList, PriceError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(PriceError::TooLarge);
    }
    let file: ListFile =
        serde_json::from_slice(text).map_err(|error| PriceError::Malformed(error.to_string()))?;
    let list = PriceList {
        currency: file.currency,
        sizes: file.sizes.into_iter().map(SizeEntry::size).collect::<Result<_, _>>()?,
        storage_gb_hour: file.storage_gb_hour.0,
        vcpu_hour: file.vcpu_hour.0,
        memory_gb_hour: file.memory_gb_hour.0,
        gpu_hour: file.gpu_hour.0,
    };
    check(&list)?;
    Ok(list)
}

fn wrong<T>(words: String) -> Result<T, PriceError> {
    Err(PriceError::Wrong(words))
}

impl SizeEntry {
    fn size(self) -> Result<Size, PriceError> {
        let usual = if self.gpus.is_some() { GPU_FAMILY } else { CPU_FAMILY };
        let size = Size {
            id: self.id,
            name: self.name,
            family: self.family.unwrap_or_else(|| usual.to_owned()),
            vcpu: self.vcpu,
            memory_mb: self.memory_mb,
            disk_gb: self.disk_gb,
            gpus: self.gpus.map(|gpus| SizeGpus { count: gpus.count, product: gpus.product }),
            hourly_rate: self.hourly_rate.0,
        };
        size.check()?;
        Ok(size)
    }
}

impl Size {
    fn check(&self) -> Result<(), PriceError> {
        let id: String = self.id.chars().take(MAX_ID).collect();
        for (member, text) in [("id", &self.id), ("family", &self.family)] {
            if !is_id(text) {
                return wrong(format!(
                    "size {id:?}: its {member} is not 1 to {MAX_ID} lower-case letters, digits, dots, colons and hyphens"
                ));
            }
        }
        if self.name.trim().is_empty() || self.name.len() > MAX_NAME || self.name.contains(char::is_control) {
            return wrong(format!("size {id}: its name is not 1 to {MAX_NAME} printable bytes"));
        }
        let gpus = self.gpus.as_ref();
        let numbers = [
            ("vcpu", Some(self.vcpu), VCPU),
            ("memory_mb", Some(self.memory_mb), MEMORY_MB),
            ("disk_gb", Some(self.disk_gb), DISK_GB),
            ("gpus.count", gpus.map(|gpus| gpus.count), GPUS),
        ];
        for (member, value, (least, most)) in numbers {
            if value.is_some_and(|value| !(least..=most).contains(&value)) {
                return wrong(format!("size {id}: {member} is not from {least} to {most}"));
            }
        }
        match gpus {
            Some(gpus) if !is_id(&gpus.product) => {
                wrong(format!("size {id}: gpus.product is not PCI vendor and device, such as \"10de:2335\""))
            }
            _ => Ok(()),
        }
    }
}

/// What the sizes are together.
fn check(list: &PriceList) -> Result<(), PriceError> {
    if list.currency.len() != 3 || !list.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return wrong("the currency is not a code of three capital letters, such as USD".to_owned());
    }
    if list.sizes.len() > MAX_SIZES {
        return wrong(format!("there are more than {MAX_SIZES} sizes"));
    }
    if list.default_size().is_none() {
        return wrong(
            "there is no size without GPUs; the first one is what requests without a size get".to_owned(),
        );
    }
    let (mut ids, mut shapes) = (BTreeSet::new(), BTreeMap::new());
    for size in &list.sizes {
        if !ids.insert(&size.id) {
            return wrong(format!("there are two sizes {}", size.id));
        }
        if size.gpus.is_some() {
            continue;
        }
        if let Some(other) = shapes.insert((size.vcpu, size.memory_mb), &size.id) {
            return wrong(format!("sizes {other} and {} have the same virtual CPUs and memory", size.id));
        }
    }
    Ok(())
}

/// What stands in URLs and records without quoting.
fn is_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".:-".contains(&byte))
}
