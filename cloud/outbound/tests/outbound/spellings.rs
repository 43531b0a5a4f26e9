//! Whatever way an address is written, it is judged by what it means: compared with a model that knows numbers only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use cloister_outbound::Outbound;
use ipnet::IpNet;
use proptest::prelude::*;
use url::Host;

use crate::names::strict;

static CLIENT: LazyLock<Outbound> = LazyLock::new(strict);

static SPECIAL: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 \
     192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 \
     ::/3 2001::/23 2001:db8::/32 3fff::/20 4000::/2 8000::/1"
        .split_whitespace()
        .map(|network| network.parse().unwrap())
        .collect()
});

/// Whether the model takes an address: itself, or every address that it wraps.
fn model(address: IpAddr) -> bool {
    let special = |address: IpAddr| SPECIAL.iter().any(|network| network.contains(&address));
    let IpAddr::V6(v6) = address else { return !special(address) };
    let wrapped = |prefix: &str| prefix.parse::<IpNet>().unwrap().contains(&address);
    let bits = u128::from(v6);
    let at = |shift: u32| IpAddr::from(Ipv4Addr::from(u32::try_from(bits >> shift & 0xffff_ffff).unwrap()));
    let inverted = IpAddr::from(Ipv4Addr::from(!u32::try_from(bits & 0xffff_ffff).unwrap()));
    match () {
        () if ["::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96"].into_iter().any(wrapped) => {
            model(at(0))
        }
        () if wrapped("2002::/16") => model(at(80)),
        () if wrapped("2001::/32") => model(at(64)) && model(inverted),
        () => {
            let isatap = matches!(bits >> 32 & 0xffff_ffff, 0x5efe | 0x0200_5efe);
            !special(address) && (!isatap || model(at(0)))
        }
    }
}

/// IPv4 addresses, half of them within networks that are not public.
fn v4() -> impl Strategy<Value = Ipv4Addr> {
    let special = (any::<prop::sample::Index>(), any::<u32>()).prop_map(|(chosen, host)| {
        let networks: Vec<_> = SPECIAL
            .iter()
            .filter_map(|network| match network {
                IpNet::V4(network) => Some(*network),
                IpNet::V6(_) => None,
            })
            .collect();
        let network = networks[chosen.index(networks.len())];
        Ipv4Addr::from(u32::from(network.network()) | host & u32::from(network.hostmask()))
    });
    prop_oneof![special, any::<u32>().prop_map(Ipv4Addr::from)]
}

/// IPv6 addresses: of every network that the model knows, of every form that carries another address, and any.
fn v6() -> impl Strategy<Value = Ipv6Addr> {
    let special = (any::<prop::sample::Index>(), any::<u128>()).prop_map(|(chosen, host)| {
        let networks: Vec<_> = SPECIAL
            .iter()
            .filter_map(|network| match network {
                IpNet::V4(_) => None,
                IpNet::V6(network) => Some(*network),
            })
            .collect();
        let network = networks[chosen.index(networks.len())];
        Ipv6Addr::from(u128::from(network.network()) | host & u128::from(network.hostmask()))
    });
    let carrying = (v4(), v4(), any::<u64>(), 0..8_u8).prop_map(|(v4, other, random, form)| {
        let (low, high) = (u128::from(u32::from(v4)), u128::from(u32::from(other)));
        let random = u128::from(random);
        Ipv6Addr::from(match form {
            0 => 0xffff_u128 << 32 | low,
            1 => low,
            2 => 0xffff_u128 << 48 | low,
            3 => 0x0064_ff9b_u128 << 96 | low,
            4 => 0x2002_u128 << 112 | low << 80 | random,
            5 => 0x2001_u128 << 112 | low << 64 | random << 32 & 0xffff_ffff << 32 | (!high & 0xffff_ffff),
            6 => 0x2606_4700_u128 << 96 | 0x5efe_u128 << 32 | low,
            _ => 0x2a00_0000_u128 << 96 | 0x0200_5efe_u128 << 32 | low,
        })
    });
    prop_oneof![special, carrying, any::<u128>().prop_map(Ipv6Addr::from)]
}

/// One number in one of the ways that parsers of addresses understand.
fn number(value: u32, way: u8) -> String {
    match way % 5 {
        0 => format!("{value}"),
        1 => format!("0{value:o}"),
        2 => format!("0x{value:x}"),
        3 => format!("0X{value:08X}"),
        _ => format!("000{value:o}"),
    }
}

/// An IPv4 address in one to four parts, each written in its own way, perhaps in other characters.
fn spelled_v4(address: Ipv4Addr, parts: u8, ways: [u8; 4], dressed: u8) -> String {
    let value = u32::from(address);
    let [a, b, c, d] = address.octets().map(u32::from);
    let numbers = match parts % 4 {
        0 => vec![value],
        1 => vec![a, value & 0x00ff_ffff],
        2 => vec![a, b, value & 0xffff],
        _ => vec![a, b, c, d],
    };
    let plain: Vec<_> = numbers.into_iter().zip(ways).map(|(value, way)| number(value, way)).collect();
    let plain = plain.join(".");
    match dressed % 5 {
        0 => plain,
        1 => format!("{plain}."),
        2 => plain.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}")),
        3 => plain.chars().map(full_width).collect(),
        _ => plain.replace('.', "。"),
    }
}

fn full_width(c: char) -> char {
    if c.is_ascii_digit() { char::from_u32(u32::from(c) + 0xfee0).unwrap() } else { c }
}

fn spelled_v6(address: Ipv6Addr, way: u8) -> String {
    let segments = address.segments();
    let full = |segments: &[u16]| segments.iter().map(|s| format!("{s:04X}")).collect::<Vec<_>>().join(":");
    let [a, b, c, d] = u32::try_from(u128::from(address) & 0xffff_ffff).unwrap().to_be_bytes();
    match way % 3 {
        0 => format!("[{address}]"),
        1 => format!("[{}]", full(&segments)),
        _ => format!("[{}:{a}.{b}.{c}.{d}]", full(&segments[..6])),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ipv4_addresses_in_every_spelling(
        address in v4(), parts in any::<u8>(), ways in any::<[u8; 4]>(), dressed in any::<u8>(),
    ) {
        let url = format!("https://{}/hook", spelled_v4(address, parts, ways, dressed));
        let checked = CLIENT.check(&url);
        prop_assert_eq!(checked.is_ok(), model(address.into()), "{} means {}", url, address);
        if let Ok(checked) = checked {
            prop_assert_eq!(checked.host(), Some(Host::Ipv4(address)));
        }
    }

    #[test]
    fn ipv6_addresses_in_every_spelling(address in v6(), way in any::<u8>()) {
        let url = format!("https://{}:8443/hook", spelled_v6(address, way));
        let checked = CLIENT.check(&url);
        prop_assert_eq!(checked.is_ok(), model(address.into()), "{} means {}", url, address);
    }

    /// Pieces that confuse parsers, in any order: what is taken has a name, or an address that the model takes, as
    /// another parser reads it.
    #[test]
    fn whatever_is_taken_is_harmless(pieces in prop::collection::vec(piece(), 0..9)) {
        let text = format!("https://{}", pieces.concat());
        let Ok(url) = CLIENT.check(&text) else { return Ok(()) };
        prop_assert_eq!(url.scheme(), "https");
        prop_assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
        let host = url.host_str().unwrap().to_owned();
        let host = host.trim_matches(['[', ']']).trim_end_matches('.');
        if let Ok(address) = host.parse::<IpAddr>() {
            prop_assert!(model(address), "{} leads to {}", text, address);
            return Ok(());
        }
        let (_, last) = host.rsplit_once('.').unwrap();
        prop_assert!(!["local", "localhost"].contains(&last), "{} leads to {}", text, host);
        prop_assert!(!last.bytes().all(|byte| byte.is_ascii_digit()), "{} leads to {}", text, host);
    }

    #[test]
    fn any_text_is_judged_without_panicking(text in any::<String>()) {
        let _ = CLIENT.check(&text);
        let _ = CLIENT.check(&format!("https://{text}"));
    }
}

fn piece() -> impl Strategy<Value = String> {
    let confusing = prop::sample::select(vec![
        "127.0.0.1",
        "0x7f",
        "0177",
        "2130706433",
        "1",
        ".",
        "。",
        "@",
        ":",
        "//",
        "/",
        "?",
        "#",
        "\\",
        "%",
        "%2e",
        "%40",
        "%2f",
        "[",
        "]",
        "::1",
        "::ffff:",
        "10.0.0.1",
        "localhost",
        "local",
        "example.com",
        "com",
        "a",
        "443",
        "8080",
        "①",
        "１",
        "\u{200b}",
        "\t",
        "0",
        "e",
        "x",
        "-",
        "xn--",
        "169.254.169.254",
        "[::1]",
        "[fd00::1]",
    ]);
    prop_oneof![8 => confusing.prop_map(str::to_owned), 1 => ".{0,3}"]
}
