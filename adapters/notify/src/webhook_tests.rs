//! Webhooks against real listeners that answer, hang, lead elsewhere or change their address.
#![expect(clippy::unnecessary_wraps, reason = "doubles of a lookup that can fail")]

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use facts::notify::{Channel, DeliverySetV1};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use units::HostPort;

use super::*;
use crate::tests::parcel;

const CERTIFICATE: &[u8] = include_bytes!("../tests/data/cert.pem");
const KEY: &[u8] = include_bytes!("../tests/data/key.pem");

/// Reads one request and answers it; what was read is told.
fn serve(mut stream: impl Read + Write, answer: &[u8]) -> String {
    let mut reader = BufReader::new(&mut stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(line.trim_end());
        head.push('\n');
    }
    let mut body = vec![0; length];
    drop(reader.read_exact(&mut body));
    drop(stream.write_all(answer).and_then(|()| stream.flush()));
    head + "\n" + &String::from_utf8_lossy(&body)
}

/// Answers one connection, and tells its port and what came.
fn listen(answer: &'static [u8], linger: Duration) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (came, coming) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        drop(came.send(serve(&stream, answer)));
        std::thread::sleep(linger);
    });
    (port, coming)
}

fn client() -> Client {
    Client { timeout: Duration::from_millis(500), ..Client::new(crate::address::resolve) }
}

/// With the machine itself opened.
fn local() -> DeliverySetV1 {
    DeliverySetV1 { allow: vec!["127.0.0.0/8".to_owned()], ..DeliverySetV1::default() }
}

fn post(client: &Client, to: &str, settings: DeliverySetV1) -> Result<String, Setback> {
    client.post(&parcel(Channel::Webhook, to, settings))
}

#[test]
fn a_post_is_signed_and_says_what_happened() {
    let (port, came) = listen(b"HTTP/1.1 204 No Content\r\n\r\n", Duration::ZERO);
    let key = std::env::temp_dir().join(format!("fourplane-notify-key-{}", std::process::id()));
    std::fs::write(&key, "secret\n").unwrap();
    let settings = DeliverySetV1 { key_file: Some(key.to_str().unwrap().to_owned()), ..local() };
    let answered = post(&client(), &format!("http://127.0.0.1:{port}/hook?a=b"), settings);
    std::fs::remove_file(key).unwrap();
    assert_eq!(answered, Ok("answered 204".to_owned()));
    let request = came.recv().unwrap();
    let (head, body) = request.split_once("\n\n").unwrap();
    let head: Vec<&str> = head.lines().collect();
    assert_eq!(head[0], "POST /hook?a=b HTTP/1.1");
    assert!(head.contains(&format!("Host: 127.0.0.1:{port}").as_str()), "{head:?}");
    assert!(head.contains(&"Fourplane-Event: failed") && head.contains(&"Fourplane-Delivery: 7"), "{head:?}");
    let signature = head.iter().find_map(|line| line.strip_prefix("Fourplane-Signature: ")).unwrap();
    let at: u64 = signature.strip_prefix("t=").unwrap().split(',').next().unwrap().parse().unwrap();
    assert_eq!(signature, sign(b"secret", at, body));
    let said: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(said["text"], "job 12 (train) failed: exited with code 3");
    assert_eq!((&said["event"], &said["outcome"]["exit_code"]), (&"failed".into(), &3.into()));
}

#[test]
fn a_signature_is_what_others_compute() {
    // openssl dgst -sha256 -hmac secret
    let expect = "t=1800000000,v1=bb7079132825ac793cea8c013c1dd24d926b9b02132245b10588d9e5c0df70d7";
    assert_eq!(sign(b"secret", 1_800_000_000, "{}"), expect);
}

#[test]
fn only_2xx_is_a_delivery() {
    let check = |answer: &'static [u8], expect: Result<&str, (&str, bool)>| {
        let (port, _came) = listen(answer, Duration::ZERO);
        let seen = post(&client(), &format!("http://127.0.0.1:{port}/"), local());
        let expect = expect.map(str::to_owned);
        let expect = expect.map_err(|(reason, is_final)| Setback { reason: reason.to_owned(), is_final });
        assert_eq!(seen, expect);
    };
    check(b"HTTP/1.1 200 OK\r\n\r\n", Ok("answered 200"));
    check(
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n",
        Err(("answered 302; redirects are not followed", true)),
    );
    check(b"HTTP/1.1 404 Not Found\r\n\r\n", Err(("answered 404", true)));
    check(b"HTTP/1.1 429 Too Many Requests\r\n\r\n", Err(("answered 429", false)));
    check(b"HTTP/1.1 503 Busy\r\n\r\n", Err(("answered 503", false)));
    check(b"SSH-2.0-OpenSSH\r\n", Err(("did not answer in HTTP/1", false)));
}

#[test]
fn a_receiver_that_hangs_or_is_not_there_is_tried_again() {
    let (port, _came) = listen(b"HTTP/1.1 2", Duration::from_secs(3));
    let start = Instant::now();
    let setback = post(&client(), &format!("http://127.0.0.1:{port}/"), local()).unwrap_err();
    assert_eq!((setback.reason, setback.is_final), (format!("127.0.0.1:{port}: it took too long"), false));
    assert!(start.elapsed() < Duration::from_secs(2));
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let setback = post(&client(), &format!("http://127.0.0.1:{free}/"), local()).unwrap_err();
    assert_eq!(
        (setback.reason, setback.is_final),
        (format!("127.0.0.1:{free}: nobody listens there"), false)
    );
}

#[test]
fn what_is_not_public_is_not_reached() {
    let (port, came) = listen(b"HTTP/1.1 200 OK\r\n\r\n", Duration::ZERO);
    for host in
        ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]"]
    {
        let setback =
            post(&client(), &format!("http://{host}:{port}/"), DeliverySetV1::default()).unwrap_err();
        assert!(setback.is_final && setback.reason.contains("`delivery.allow`"), "{host}: {setback:?}");
    }
    let metadata = post(&client(), "http://169.254.169.254/latest", DeliverySetV1::default()).unwrap_err();
    assert_eq!(
        metadata.reason,
        "169.254.169.254 is link-local, as metadata services are; `delivery.allow` of the specification can open it"
    );
    assert!(came.try_recv().is_err(), "nobody came");
}

static ASKED: AtomicUsize = AtomicUsize::new(0);

/// First a public address, then the machine itself.
fn rebinding(at: &HostPort) -> std::io::Result<Vec<SocketAddr>> {
    let first = ASKED.fetch_add(1, Ordering::SeqCst) == 0;
    let address = if first { Ipv4Addr::new(198, 18, 0, 1) } else { Ipv4Addr::LOCALHOST };
    Ok(vec![SocketAddr::from((address, at.port))])
}

/// One address of each kind.
fn both(at: &HostPort) -> std::io::Result<Vec<SocketAddr>> {
    Ok([Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::LOCALHOST].map(|ip| SocketAddr::from((ip, at.port))).to_vec())
}

#[test]
fn a_name_that_changes_its_meaning_leads_nowhere_else() {
    let (port, came) = listen(b"HTTP/1.1 200 OK\r\n\r\n", Duration::ZERO);
    let client = Client { resolve: rebinding, timeout: Duration::from_millis(300), ..client() };
    // Stands for a public one here, as the tests reach none.
    let settings = DeliverySetV1 { allow: vec!["198.18.0.0/15".to_owned()], ..DeliverySetV1::default() };
    let setback = post(&client, &format!("http://hook.test:{port}/"), settings).unwrap_err();
    assert!(!setback.is_final, "it was tried at the address that was checked: {setback:?}");
    assert_eq!(ASKED.load(Ordering::SeqCst), 1, "the name is looked up once");
    let client = Client { resolve: both, ..client };
    let setback = post(&client, &format!("http://hook.test:{port}/"), DeliverySetV1::default()).unwrap_err();
    assert!(
        setback.is_final && setback.reason.starts_with("hook.test is 127.0.0.1, which is of the"),
        "{setback:?}"
    );
    assert!(came.try_recv().is_err(), "nobody came");
}

fn here(at: &HostPort) -> std::io::Result<Vec<SocketAddr>> {
    Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, at.port))])
}

#[test]
fn https_needs_a_certificate_that_is_trusted_and_of_the_name() {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let server = builder.with_no_client_auth().with_single_cert(vec![certificate.clone()], key).unwrap();
    let server = Arc::new(server);
    let check = |trusted: bool, host: &str, expect: bool| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Arc::clone(&server);
        let served = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(server).unwrap();
            serve(StreamOwned::new(connection, stream), b"HTTP/1.1 200 OK\r\n\r\n")
        });
        let mut roots = RootCertStore::empty();
        if trusted {
            roots.add(certificate.clone()).unwrap();
        }
        let client = Client { resolve: here, ..client() };
        client.tls.set(config(roots)).unwrap();
        let seen = post(&client, &format!("https://{host}:{port}/"), local());
        assert_eq!(seen.is_ok(), expect, "{host}: {seen:?}");
        assert_eq!(served.join().unwrap().starts_with("POST"), expect);
    };
    check(true, "hook.test", true);
    check(true, "other.test", false);
    check(false, "hook.test", false);
}
