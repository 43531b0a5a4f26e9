//! `cloister cvms ports`: ports of the host that lead to a CVM, beside the ingress.

use std::str::FromStr;

use serde::Deserialize;
use serde_json::json;

use crate::api::read;
use crate::args::CvmName;
use crate::commands::Outcome;
use crate::output::{Align, Table};
use crate::session::Session;

/// Arguments of `cvms ports`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister cvms ports my-app --set 5432,53/udp\n\
                        Without --set or --clear it lists them. The service chooses the ports of the host.")]
pub(crate) struct Args {
    #[command(flatten)]
    name: CvmName,
    /// Replace all by mappings to these ports of the guest: PORT or PORT/udp, with commas
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    set: Vec<GuestPort>,
    /// Remove all
    #[arg(long, conflicts_with = "set")]
    clear: bool,
}

/// A port of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestPort {
    port: u16,
    protocol: &'static str,
}

impl FromStr for GuestPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (port, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = ["tcp", "udp"].into_iter().find(|name| protocol.eq_ignore_ascii_case(name));
        let port = port.parse().ok().filter(|port| *port > 0);
        let both = port.zip(protocol).map(|(port, protocol)| Self { port, protocol });
        both.ok_or("write it like 5432 or 53/udp")
    }
}

#[derive(Deserialize)]
struct Mapping {
    host_port: u16,
    vm_port: u16,
    protocol: String,
    host_address: Option<String>,
}

/// Lists or replaces the mappings.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let path = ["cvms", args.name.cvm.as_str(), "ports"];
    let document = if args.clear || !args.set.is_empty() {
        let ports: Vec<_> =
            args.set.iter().map(|port| json!({ "vm_port": port.port, "protocol": port.protocol })).collect();
        client.put_document(&path, &json!({ "ports": ports })).await?
    } else {
        client.get(&path, &[]).await?
    };
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let mut table =
        Table::new(&[("HOST", Align::Left), ("GUEST PORT", Align::Right), ("PROTOCOL", Align::Left)]);
    for mapping in read::<Vec<Mapping>>(&document)? {
        let address = mapping.host_address.unwrap_or_default();
        table.row([
            format!("{address}:{}", mapping.host_port),
            mapping.vm_port.to_string(),
            mapping.protocol,
        ]);
    }
    output.table(&table, "No port of the host leads to this CVM.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_as_people_write_them() {
        assert_eq!("53/UDP".parse(), Ok(GuestPort { port: 53, protocol: "udp" }));
        assert_eq!("5432".parse(), Ok(GuestPort { port: 5432, protocol: "tcp" }));
        for text in ["", "0", "65536", "80/sctp", "-1", "80/"] {
            assert!(text.parse::<GuestPort>().is_err(), "{text}");
        }
    }
}
