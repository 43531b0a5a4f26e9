//! How large a CVM is and where it goes.

use std::str::FromStr;

use serde_json::{Map, Value, json};

/// Options that choose resources; what is left out, the server chooses.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Resources")]
pub(crate) struct Size {
    /// Size from the catalogue, such as tdx.small
    #[arg(short = 't', long, value_name = "TYPE")]
    pub(crate) instance_type: Option<String>,
    /// Virtual CPUs
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) vcpu: Option<u32>,
    /// Memory, in MiB or with a unit: 2048, 2048M or 2G
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Mebibytes>,
    /// Data disk in GiB, or with a unit: 20, 20G or 1T
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Gibibytes>,
    /// Guest image by name [default: the newest]
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// Node by number [default: any with room]
    #[arg(long, value_name = "ID")]
    pub(crate) node: Option<i64>,
    /// Region of the node
    #[arg(long)]
    pub(crate) region: Option<String>,
}

impl Size {
    /// The members of a provision request.
    pub(super) fn members(&self) -> Map<String, Value> {
        let members = [
            ("instance_type", json!(self.instance_type)),
            ("vcpu", json!(self.vcpu)),
            ("memory", json!(self.memory.map(|size| size.0))),
            ("disk_size", json!(self.disk.map(|size| size.0))),
            ("image", json!(self.image)),
            ("teepod_id", json!(self.node)),
            ("region", json!(self.region)),
        ];
        let given = members.into_iter().filter(|(_, value)| !value.is_null());
        given.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mebibytes(pub(crate) u32);

/// Disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gibibytes(pub(crate) u32);

impl FromStr for Mebibytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        measure(text, &[("M", 1), ("G", 1024)]).map(Self).ok_or("write it like 2048, 2048M or 2G")
    }
}

impl FromStr for Gibibytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        measure(text, &[("G", 1), ("T", 1024)]).map(Self).ok_or("write it like 20, 20G or 1T")
    }
}

fn measure(text: &str, units: &[(&str, u32)]) -> Option<u32> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text.get(digits.len()..)?.to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let factor = if unit.is_empty() { 1 } else { units.iter().find(|(name, _)| *name == unit)?.1 };
    digits.parse::<u32>().ok()?.checked_mul(factor).filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, expected) in
            [("2048", Some(2048)), ("2g", Some(2048)), ("2GiB", Some(2048)), ("512MB", Some(512))]
        {
            assert_eq!(text.parse().ok(), expected.map(Mebibytes), "{text}");
        }
        for text in ["", "G", "0", "-1", "1.5G", "2T", "4194304G", "2 G"] {
            assert!(text.parse::<Mebibytes>().is_err(), "{text}");
        }
        assert_eq!("1T".parse(), Ok(Gibibytes(1024)));
    }
}
