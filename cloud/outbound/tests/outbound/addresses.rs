//! Which addresses are public, one of each kind.

use cloister_outbound::Refused;

use crate::names::strict;

const REFUSED: &[(&str, &str)] = &[
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "this network"),
    ("10.0.0.1", "private"),
    ("10.255.255.255", "private"),
    ("100.64.0.1", "carrier-grade NAT"),
    ("100.127.255.255", "carrier-grade NAT"),
    ("100.100.100.200", "metadata"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("168.63.129.16", "metadata"),
    ("169.254.169.254", "metadata"),
    ("169.254.0.1", "link-local"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.192", "metadata"),
    ("192.0.2.1", "documentation"),
    ("192.88.99.1", "6to4 relay"),
    ("192.168.1.1", "private"),
    ("198.18.0.1", "benchmarking"),
    ("198.19.255.255", "benchmarking"),
    ("198.51.100.1", "documentation"),
    ("203.0.113.1", "documentation"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.255", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "broadcast"),
    ("[::]", "unspecified"),
    ("[::1]", "loopback"),
    ("[::ffff:127.0.0.1]", "mapped loopback"),
    ("[::ffff:a9fe:a9fe]", "mapped metadata"),
    ("[::127.0.0.1]", "compatible loopback"),
    ("[::ffff:0:10.0.0.1]", "translated private"),
    ("[64:ff9b::10.0.0.1]", "NAT64 of private"),
    ("[64:ff9b:1::1]", "local NAT64"),
    ("[100::1]", "discarded"),
    ("[2001::1]", "Teredo of 0.0.0.0"),
    ("[2001:0:5db8:d822::80ff:fffe]", "Teredo of loopback"),
    ("[2001:2::1]", "benchmarking"),
    ("[2001:20::1]", "ORCHID"),
    ("[2001:db8::1]", "documentation"),
    ("[2002:7f00:1::]", "6to4 of loopback"),
    ("[2002:c0a8:101::1]", "6to4 of private"),
    ("[3fff::1]", "documentation"),
    ("[4000::1]", "reserved"),
    ("[5f00::1]", "segment routing"),
    ("[fc00::1]", "unique local"),
    ("[fd00:ec2::254]", "metadata"),
    ("[fe80::1]", "link-local"),
    ("[fec0::1]", "site-local"),
    ("[ff02::1]", "multicast"),
    ("[2606:2800:220:1:0:5efe:10.0.0.1]", "ISATAP of private"),
    ("[2606:2800:220:1:200:5efe:127.0.0.1]", "ISATAP of loopback"),
];

const PUBLIC: &[&str] = &[
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "168.63.129.17",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.1",
    "192.167.255.255",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "[2606:4700:4700::1111]",
    "[2a00:1450:4001:80b::200e]",
    "[::ffff:1.1.1.1]",
    "[64:ff9b::1.1.1.1]",
    "[2002:101:101::1]",
    "[2001:0:101:101::fefe:fefe]",
    "[2001:200::1]",
    "[3ffe::1]",
];

#[tokio::test]
async fn no_address_of_a_special_kind_is_taken() {
    let client = strict();
    for (host, kind) in REFUSED {
        let checked = client.check(&format!("https://{host}/"));
        assert_eq!(checked.map(String::from), Err(Refused::Address), "{host}: {kind}");
    }
}

#[tokio::test]
async fn the_neighbours_of_special_networks_are_public() {
    let client = strict();
    for host in PUBLIC {
        assert!(client.check(&format!("https://{host}/")).is_ok(), "{host}");
    }
}
