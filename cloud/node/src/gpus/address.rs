use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a PCI device is: domain, bus, device, function; `0000:41:00.0` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PciAddress {
    domain: u16,
    bus: u8,
    device: u8,
    function: u8,
}

/// A text that is no PCI address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a PCI address looks like 0000:41:00.0")]
pub struct InvalidPciAddress;

const MAX_DEVICE: u8 = 0x1f;
const MAX_FUNCTION: u8 = 7;

impl PciAddress {
    /// The address of function 0 of a device; bits that no device number has are cut off.
    pub(super) const fn of_device(domain: u16, bus: u8, device: u8) -> Self {
        Self { domain, bus, device: device & MAX_DEVICE, function: 0 }
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = InvalidPciAddress;

    fn from_str(text: &str) -> Result<Self, InvalidPciAddress> {
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            Some(Self {
                domain: u16::from_str_radix(domain, 16).ok()?,
                bus: u8::from_str_radix(bus, 16).ok()?,
                device: u8::from_str_radix(device, 16).ok().filter(|device| *device <= MAX_DEVICE)?,
                function: u8::from_str_radix(function, 16)
                    .ok()
                    .filter(|function| *function <= MAX_FUNCTION)?,
            })
        };
        // One way to write each: what is compared as text elsewhere is the same device here.
        parse().filter(|address| address.to_string() == text).ok_or(InvalidPciAddress)
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for PciAddress {
    type Error = InvalidPciAddress;

    fn try_from(text: String) -> Result<Self, InvalidPciAddress> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_address_has_one_text(text in "[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\\.[0-7]") {
            prop_assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }

        #[test]
        fn nothing_else_is_one(text in "[0-9a-fA-F:.,=+x ]{0,16}") {
            if let Ok(address) = text.parse::<PciAddress>() {
                prop_assert_eq!(address.to_string(), text);
            }
        }
    }

    #[test]
    fn impossible_and_sloppy_addresses_are_refused() {
        for text in
            ["", "41:00.0", "0000:41:20.0", "0000:41:00.8", "0:41:0.0", "0000:4A:00.0", "0000:41:00.0,x=y"]
        {
            assert_eq!(text.parse::<PciAddress>(), Err(InvalidPciAddress), "{text}");
        }
    }
}
