//! Which addresses a webhook may reach. The server asks from where a user may not, so what is not
//! public is only for those to whom an administrator opened it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use units::{HostPort, Network};

/// Finds the addresses of a machine.
pub(crate) type Resolve = fn(&HostPort) -> io::Result<Vec<SocketAddr>>;

/// Asks the system.
pub(crate) fn resolve(at: &HostPort) -> io::Result<Vec<SocketAddr>> {
    Ok((at.host.as_str(), at.port).to_socket_addrs()?.collect())
}

/// IPv4 networks that are not public, and what they are.
const CLOSED_V4: [(&str, &str); 13] = [
    ("0.0.0.0/8", "of this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared within a provider"),
    ("127.0.0.0/8", "of the machine itself"),
    ("169.254.0.0/16", "link-local, as metadata services are"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "a tunnel to IPv6"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
];

/// Of the public part of IPv6, what is not public, or leads to IPv4.
const CLOSED_V6: [(&str, &str); 4] = [
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "a tunnel to IPv4"),
    ("3fff::/20", "for documentation"),
];

/// Why `address` may not be reached; nothing if it may.
pub(crate) fn closed(address: IpAddr, allowed: &[Network]) -> Option<&'static str> {
    if allowed.iter().any(|network| network.contains(address)) {
        return None;
    }
    match address.to_canonical() {
        IpAddr::V4(address) => closed_v4(address),
        IpAddr::V6(address) => match translated(address) {
            Some(inner) => closed_v4(inner),
            None if address.segments()[0] & 0xe000 == 0x2000 => within(&CLOSED_V6, address.into()),
            None => Some("not public"),
        },
    }
}

fn closed_v4(address: Ipv4Addr) -> Option<&'static str> {
    // From 224.0.0.0 on.
    let is_high = address.octets()[0] >= 224;
    if is_high { Some("for many receivers, or reserved") } else { within(&CLOSED_V4, address.into()) }
}

fn within(networks: &[(&str, &'static str)], address: IpAddr) -> Option<&'static str> {
    let holds = |network: &str| network.parse::<Network>().is_ok_and(|network| network.contains(address));
    networks.iter().find(|(network, _)| holds(network)).map(|(_, what)| *what)
}

/// The IPv4 address that a translator makes of an address of `64:ff9b::/96`.
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = address.segments() else { return None };
    Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_public_is_open() {
        let check = |address: &str, expect: Option<&str>| {
            assert_eq!(closed(address.parse().unwrap(), &[]), expect, "{address}");
        };
        for open in ["8.8.8.8", "1.1.1.1", "223.255.255.1", "2606:4700::1111", "64:ff9b::808:808"] {
            check(open, None);
        }
        let metadata = Some("link-local, as metadata services are");
        check("127.0.0.1", Some("of the machine itself"));
        check("127.255.255.254", Some("of the machine itself"));
        check("0.0.0.0", Some("of this network"));
        check("10.1.2.3", Some("private"));
        check("172.31.255.255", Some("private"));
        check("172.32.0.1", None);
        check("192.168.1.1", Some("private"));
        check("169.254.169.254", metadata);
        check("100.100.100.200", Some("shared within a provider"));
        check("224.0.0.1", Some("for many receivers, or reserved"));
        check("255.255.255.255", Some("for many receivers, or reserved"));
        for inner in ["::1", "::", "fe80::1", "fd00:ec2::254", "fc00::1", "ff02::1", "::7f00:1", "fec0::1"] {
            check(inner, Some("not public"));
        }
        check("::ffff:127.0.0.1", Some("of the machine itself"));
        check("::ffff:169.254.169.254", metadata);
        check("64:ff9b::a9fe:a9fe", metadata);
        check("2002:7f00:1::", Some("a tunnel to IPv4"));
        check("2001:0:7f00:1::", Some("reserved"));
        check("2001:db8::1", Some("for documentation"));
    }

    #[test]
    fn an_administrator_opens_networks() {
        let allowed: Vec<Network> = ["10.2.0.0/16", "::1"].iter().map(|text| text.parse().unwrap()).collect();
        let check = |address: &str, expect: bool| {
            assert_eq!(closed(address.parse().unwrap(), &allowed).is_none(), expect, "{address}");
        };
        check("10.2.3.4", true);
        check("::ffff:10.2.3.4", true);
        check("10.3.0.1", false);
        check("::1", true);
        check("127.0.0.1", false);
    }
}
