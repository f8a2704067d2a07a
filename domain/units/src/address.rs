//! Addresses outside: of the web, of mail, of networks. Only their form; nothing is looked up.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A text is not the address that it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is {problem}")]
pub struct BadAddress {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

fn bad<T>(text: &str, problem: &'static str) -> Result<T, BadAddress> {
    Err(BadAddress { text: text.to_owned(), problem })
}

/// A machine and a port on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address; an IPv6 address stands without its brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Reads `host`, `host:port` or `[v6]:port`; `usual` is the port where none is given.
    pub fn parse(text: &str, usual: u16) -> Result<Self, BadAddress> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) if host.parse::<Ipv6Addr>().is_ok() => (host, rest),
            Some(_) => return bad(text, "no IPv6 address between brackets"),
            None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
        };
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
        if host.is_empty() || host.len() > 253 || !host.chars().all(named) {
            return bad(text, "no name of a machine");
        }
        let digits = port.strip_prefix(':').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let port = if port.is_empty() { Some(usual) } else { digits.and_then(|digits| digits.parse().ok()) };
        match port.filter(|port| *port > 0) {
            Some(port) => Ok(Self { host: host.to_owned(), port }),
            None => bad(text, "no machine and port, as in example.org:25; ports are 1 to 65535"),
        }
    }
}

/// `example.org:25`, `[::1]:25`
impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// An address of the web, `http` or `https`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebUrl {
    /// Whether it is `https`.
    pub tls: bool,
    /// The machine and port.
    pub at: HostPort,
    /// Path and query, from the first slash on.
    pub path: String,
    /// What the header `Host` says.
    pub host_header: String,
}

/// The longest address in bytes.
const URL_MAX: usize = 2_048;

impl FromStr for WebUrl {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return bad(text, "no address that begins with https:// or http://"),
        };
        if text.len() > URL_MAX {
            return bad(text, "longer than 2048 bytes");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return bad(text, "no address of the web: it has a blank or a letter beyond ASCII");
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if host.contains('@') {
            return bad(text, "an address with a user's name in it, which is not sent");
        }
        let at = HostPort::parse(host, if tls { 443 } else { 80 })?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { tls, at, path, host_header: host.to_owned() })
    }
}

/// An address of mail: `ada@example.org`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailAddress(String);

impl MailAddress {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A plain address without a name or quotes around it.
impl FromStr for MailAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"<>()[],;:\\\"@".contains(&byte);
        let is_plain = |part: &str| !part.is_empty() && !part.starts_with('-') && part.bytes().all(plain);
        match text.rsplit_once('@') {
            Some((local, domain)) if is_plain(local) && is_plain(domain) && text.len() <= 254 => {
                Ok(Self(text.to_owned()))
            }
            _ => bad(text, "no address of mail, as in ada@example.org"),
        }
    }
}

/// A network of addresses: `10.0.0.0/8`; a lone address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Network {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(at, bits)| (at, Some(bits)));
        let Ok(address) = address.parse::<IpAddr>() else {
            return bad(text, "no network, as in 10.2.0.0/16 or fd00::/8");
        };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse);
        let Some(bits) = bits.ok().filter(|bits| *bits <= most) else {
            return bad(text, "no network: behind the slash stands how many bits are the network's");
        };
        let network = Self { address, bits };
        if network.contains(address) {
            Ok(network)
        } else {
            bad(text, "an address within a network; write the network's first address")
        }
    }
}

impl Network {
    /// Whether `address` is in it. An IPv4 address that is written as IPv6 is what it stands for.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        let host_bits = u32::from(width - self.bits);
        let part = |address: u128| address.checked_shr(host_bits).unwrap_or(0);
        let of_host = bits_of(self.address) ^ part(bits_of(self.address)).checked_shl(host_bits).unwrap_or(0);
        address.is_ipv4() == self.address.is_ipv4()
            && of_host == 0
            && part(bits_of(address)) == part(bits_of(self.address))
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_addresses_are_read() {
        let check = |text: &str, expect: Option<(bool, &str, u16, &str, &str)>| {
            let read = text.parse::<WebUrl>().ok();
            let seen = read.as_ref().map(|url| {
                (url.tls, url.at.host.as_str(), url.at.port, url.path.as_str(), url.host_header.as_str())
            });
            assert_eq!(seen, expect, "{text}");
        };
        check("https://example.org", Some((true, "example.org", 443, "/", "example.org")));
        let port = Some((false, "example.org", 8080, "/a?b=c", "example.org:8080"));
        check("http://example.org:8080/a?b=c#d", port);
        check("https://example.org?x", Some((true, "example.org", 443, "/?x", "example.org")));
        check("http://[::1]/x", Some((false, "::1", 80, "/x", "[::1]")));
        check("http://[::1]:9/x", Some((false, "::1", 9, "/x", "[::1]:9")));
        for wrong in [
            "ftp://example.org",
            "https://",
            "https://ada:secret@example.org/",
            "https://example.org:0/",
            "https://example.org:99999/",
            "https://example.org:+80/",
            "https://example.org/a b",
            "https://example.org/\r\nHost: other",
            "https://ex%61mple.org/",
            "https://[fe80::1%25eth0]/",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn mail_addresses_are_plain() {
        let check =
            |text: &str, expect: bool| assert_eq!(text.parse::<MailAddress>().is_ok(), expect, "{text}");
        check("ada@example.org", true);
        check("ada.l+jobs@mail-1", true);
        check("ada", false);
        check("@example.org", false);
        check("ada@", false);
        check("a@b@c", false);
        check("-oQ@example.org", false);
        check("Ada <ada@example.org>", false);
        check("ada@example.org\r\nBcc: bob@example.org", false);
    }

    #[test]
    fn networks_hold_their_addresses() {
        let check = |network: &str, address: &str, expect: Option<bool>| {
            let address: IpAddr = address.parse().unwrap();
            let held = network.parse::<Network>().ok().map(|network| network.contains(address));
            assert_eq!(held, expect, "{network} {address}");
        };
        check("10.0.0.0/8", "10.255.0.1", Some(true));
        check("10.0.0.0/8", "11.0.0.1", Some(false));
        check("127.0.0.1", "127.0.0.1", Some(true));
        check("127.0.0.1", "127.0.0.2", Some(false));
        check("0.0.0.0/0", "8.8.8.8", Some(true));
        check("0.0.0.0/0", "::1", Some(false));
        check("::/0", "fd00::1", Some(true));
        check("10.0.0.0/8", "::ffff:10.1.1.1", Some(true));
        check("10.0.0.1/8", "10.0.0.1", None);
        check("10.0.0.0/33", "10.0.0.1", None);
        check("ten", "10.0.0.1", None);
    }
}
