//! Whatever a person gives as a URL: what is taken is https, has neither credentials nor a fragment, and leads to no
//! address that is not public.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};

use cloister_outbound::{Outbound, OutboundConfig, SystemResolver};
use libfuzzer_sys::fuzz_target;

static CLIENT: LazyLock<Outbound> =
    LazyLock::new(|| Outbound::new(OutboundConfig::default(), Arc::new(SystemResolver::new())));

fuzz_target!(|text: &str| {
    let Ok(url) = CLIENT.check(text) else { return };
    assert_eq!(url.scheme(), "https");
    assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
    let host = url.host_str().expect("a host");
    match host.trim_matches(['[', ']']).trim_end_matches('.').parse() {
        Ok(IpAddr::V4(address)) => assert!(harmless(address)),
        Ok(IpAddr::V6(address)) => {
            assert!(address.segments()[0] >> 13 == 1 || carries_ipv4(address));
            assert!(address.to_ipv4_mapped().is_none_or(harmless));
        }
        Err(_) => assert!(host.contains('.')),
    }
    let again = CLIENT.check(url.as_str()).expect("what was taken once is taken again");
    assert_eq!(again, url);
});

/// IPv4-compatible, mapped, translated, NAT64.
fn carries_ipv4(address: Ipv6Addr) -> bool {
    matches!(
        address.segments(),
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..]
    )
}

fn harmless(address: Ipv4Addr) -> bool {
    !(address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_unspecified())
}
