//! Which addresses are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not public, with the length of their prefix.
const REFUSED_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::UNSPECIFIED, 8),            // "this network"
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // carrier-grade NAT, and a cloud's metadata
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // a cloud's metadata, at a public address
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, and most clouds' metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments, and a cloud's metadata
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // relays of 6to4, no longer in use
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarking
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, and broadcast
];

/// Networks within IPv6's one public range (`2000::/3`) that are not public themselves.
const REFUSED_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, benchmarking, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// The address that a connection is made to: an IPv6 form of an IPv4 address is that address.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Whether everybody on the internet has the same machine at an address. An address that carries another one, for
/// whoever translates or tunnels, is judged by what it carries.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match carried(address) {
            Some(meant) => meant.into_iter().flatten().all(is_public_v4),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let within = |&(network, bits): &(Ipv4Addr, u32)| {
        u32::from(address) >> (32 - bits) == u32::from(network) >> (32 - bits)
    };
    !REFUSED_V4.iter().any(within)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    within_v6(address, Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)
        && !REFUSED_V6.iter().any(|&(network, bits)| within_v6(address, network, bits))
        && isatap(address).is_none_or(is_public_v4)
}

fn within_v6(address: Ipv6Addr, network: Ipv6Addr, bits: u32) -> bool {
    u128::from(address) >> (128 - bits) == u128::from(network) >> (128 - bits)
}

/// The IPv4 addresses that an IPv6 address of a transition mechanism leads to.
fn carried(address: Ipv6Addr) -> Option<[Option<Ipv4Addr>; 2]> {
    let segments = address.segments();
    // The IPv4 address that begins at one of the eight segments.
    let at = |segment: usize| Some(Ipv4Addr::from_bits(low_32(u128::from(address) >> (96 - 16 * segment))));
    match segments {
        // IPv4-compatible; unspecified and loopback are here, too, and mean networks that are not public. Then
        // IPv4-translated (SIIT), and NAT64.
        [0, 0, 0, 0, 0 | 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some([at(6), None]),
        // 6to4.
        [0x2002, ..] => Some([at(1), None]),
        // Teredo: the server, and the client with all bits inverted.
        [0x2001, 0, ..] => Some([at(2), at(6).map(|client| Ipv4Addr::from_bits(!client.to_bits()))]),
        _ => None,
    }
}

/// The IPv4 address that an interface of ISATAP tunnels to.
fn isatap(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let interface = matches!(address.segments(), [_, _, _, _, 0 | 0x200, 0x5efe, _, _]);
    interface.then(|| Ipv4Addr::from_bits(low_32(address.into())))
}

fn low_32(bits: u128) -> u32 {
    let [.., a, b, c, d] = bits.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}
