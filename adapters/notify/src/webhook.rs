//! Webhooks: one POST of JSON, signed, to an address that was looked up once.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use facts::Hash32;
use ops::notify::{Parcel, Setback};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use units::{Network, WebUrl};

use crate::address::{Resolve, closed};
use crate::stream::{Bounded, words};
use crate::{later, message, never};

/// All of a delivery is over by then.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The status line of an answer is within so many bytes.
const STATUS_LINE: usize = 512;
/// The longest key in bytes.
const KEY_MAX: u64 = 4_096;

pub(crate) struct Client {
    resolve: Resolve,
    timeout: Duration,
    /// Made when it is first needed.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Client {
    pub(crate) fn new(resolve: Resolve) -> Self {
        Self { resolve, timeout: TIMEOUT, tls: OnceLock::new() }
    }

    pub(crate) fn post(&self, parcel: &Parcel) -> Result<String, Setback> {
        let deadline = Instant::now() + self.timeout;
        let url: WebUrl =
            parcel.delivery.target.to.parse().map_err(|error: units::BadAddress| never(error.to_string()))?;
        let addresses = self.addresses(&url, parcel)?;
        let request = request(parcel, &url)?;
        let host = &url.at;
        let failed = |error: std::io::Error| later(format!("{host}: {}", words(&error)));
        let stream = Bounded::connect(&addresses, deadline).map_err(failed)?;
        let line = if url.tls {
            let name = ServerName::try_from(host.host.clone());
            let name = name.map_err(|_| never(format!("{host}: no name that a certificate can be for")))?;
            let tls = self.tls.get_or_init(|| roots().and_then(config)).clone().map_err(later)?;
            let connection = ClientConnection::new(tls, name);
            let connection = connection.map_err(|error| later(format!("{host}: {error}")))?;
            exchange(StreamOwned::new(connection, stream), &request)
        } else {
            exchange(stream, &request)
        };
        judge(&line.map_err(failed)?)
    }

    /// The addresses of a machine, if all of them may be reached. What is connected to is one of
    /// these: a name that means another address a moment later leads nowhere else.
    fn addresses(&self, url: &WebUrl, parcel: &Parcel) -> Result<Vec<SocketAddr>, Setback> {
        let host = &url.at.host;
        let found =
            (self.resolve)(&url.at).map_err(|error| later(format!("{host} was not found: {error}")))?;
        let allowed: Vec<Network> =
            parcel.settings.allow.iter().filter_map(|network| network.parse().ok()).collect();
        let refused = found.iter().find_map(|address| Some((address.ip(), closed(address.ip(), &allowed)?)));
        refused.map_or(Ok(found), |(ip, what)| {
            let is = if ip.to_string() == *host { String::new() } else { format!(" is {ip}, which") };
            Err(never(format!("{host}{is} is {what}; `delivery.allow` of the specification can open it")))
        })
    }
}

/// Certificates that this machine trusts.
fn roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let none = || "this machine has no trusted certificates for https".to_owned();
    if roots.is_empty() { Err(none()) } else { Ok(roots) }
}

fn config(roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| error.to_string())?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// The whole request.
fn request(parcel: &Parcel, url: &WebUrl) -> Result<Vec<u8>, Setback> {
    let delivery = &parcel.delivery;
    let body = message::json(delivery);
    let signature = match &parcel.settings.key_file {
        Some(path) => format!("Fourplane-Signature: {}\r\n", signature(path, &body)?),
        None => String::new(),
    };
    let (path, host, length) = (&url.path, &url.host_header, body.len());
    let (event, id, version) = (delivery.notice.occasion.word(), delivery.id, env!("CARGO_PKG_VERSION"));
    Ok(format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: fourplane/{version}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\
         Fourplane-Event: {event}\r\nFourplane-Delivery: {id}\r\n{signature}\r\n{body}"
    )
    .into_bytes())
}

/// `t=1800000000,v1=…`: HMAC-SHA256 over the time, a dot and the body.
fn signature(path: &str, body: &str) -> Result<String, Setback> {
    let read = std::fs::File::open(path).and_then(|file| {
        let mut key = Vec::new();
        file.take(KEY_MAX).read_to_end(&mut key).map(|_| key)
    });
    let key = read.map_err(|error| later(format!("the key in {path} cannot be read: {error}")))?;
    let key = key.trim_ascii();
    if key.is_empty() {
        return Err(later(format!("the key in {path} is empty")));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(sign(key, now, body))
}

fn sign(key: &[u8], at: u64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, format!("{at}.{body}").as_bytes());
    let tag = Hash32(tag.as_ref().try_into().expect("SHA-256 has 32 bytes"));
    format!("t={at},v1={tag}")
}

/// Sends, and reads the first line of the answer.
fn exchange(mut stream: impl Read + Write, request: &[u8]) -> std::io::Result<String> {
    stream.write_all(request)?;
    stream.flush()?;
    let (mut answer, mut buffer) = (Vec::new(), [0; STATUS_LINE]);
    while answer.len() < STATUS_LINE && !answer.contains(&b'\n') {
        match stream.read(&mut buffer)? {
            0 => break,
            count => answer.extend(&buffer[..count]),
        }
    }
    let line = answer.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).trim_end().to_owned())
}

/// Only 2xx is a delivery. A redirect is not followed: it would lead past the check of the address.
fn judge(line: &str) -> Result<String, Setback> {
    let mut words = line.split_ascii_whitespace();
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let code = words.next().and_then(|code| code.parse::<u16>().ok()).filter(|_| is_http);
    match code {
        Some(code @ 200..=299) => Ok(format!("answered {code}")),
        Some(code @ 300..=399) => Err(never(format!("answered {code}; redirects are not followed"))),
        Some(code @ (408 | 425 | 429)) => Err(later(format!("answered {code}"))),
        Some(code @ 400..=499) => Err(never(format!("answered {code}"))),
        Some(code) => Err(later(format!("answered {code}"))),
        None => Err(later("did not answer in HTTP/1")),
    }
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
