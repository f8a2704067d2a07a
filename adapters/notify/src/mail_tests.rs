//! Mail against a relay that speaks the protocol, and some that do not.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use facts::notify::{Channel, DeliverySetV1};

use super::*;
use crate::tests::{notice, parcel};

/// A relay for one connection: its greeting, and its answer to each line that begins so; all other
/// lines it takes. Tells its port and what it was said.
fn relay(
    greeting: &'static str,
    answers: &'static [(&'static str, &'static str)],
) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (said, saying) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let (mut reader, mut writer) = (BufReader::new(&stream), &stream);
        writer.write_all(greeting.as_bytes()).unwrap();
        let (mut all, mut in_data) = (String::new(), false);
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap_or(0) > 0 {
            all.push_str(&line);
            let known = answers.iter().find(|(word, _)| line.starts_with(word)).map(|(_, answer)| *answer);
            let answer = match line.as_str() {
                ".\r\n" => Some("250 2.0.0 queued as 4711\r\n"),
                _ if in_data => None,
                "DATA\r\n" => Some(known.unwrap_or("354 go on\r\n")),
                "QUIT\r\n" => Some("221 bye\r\n"),
                _ if line.starts_with("EHLO") => {
                    Some(known.unwrap_or("250-relay\r\n250-8BITMIME\r\n250 SIZE 1000\r\n"))
                }
                _ => Some(known.unwrap_or("250 ok\r\n")),
            };
            in_data = (in_data || line == "DATA\r\n") && line != ".\r\n";
            drop(answer.map(|answer| writer.write_all(answer.as_bytes())));
            line.clear();
        }
        drop(said.send(all));
    });
    (port, saying)
}

fn told(port: u16, to: &str) -> Result<String, Setback> {
    let settings = DeliverySetV1 { relay: Some(format!("127.0.0.1:{port}")), ..DeliverySetV1::default() };
    send(&parcel(Channel::Email, to, settings), "node1")
}

#[test]
fn a_relay_takes_a_letter() {
    let (port, said) = relay("220 relay ready\r\n", &[]);
    assert_eq!(
        told(port, "ada@example.org"),
        Ok(format!("127.0.0.1:{port} took it: 250 2.0.0 queued as 4711"))
    );
    let said = said.recv().unwrap();
    let (envelope, rest) = said.split_once("DATA\r\n").unwrap();
    assert_eq!(envelope, "EHLO node1\r\nMAIL FROM:<fourplane@node1>\r\nRCPT TO:<ada@example.org>\r\n");
    let (head, body) = rest.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("\r\nSubject: Fourplane: job 12 (train) failed: exited with code 3\r\n"), "{head}");
    assert!(head.contains("\r\nTo: <ada@example.org>\r\n") && head.contains("Auto-Submitted"), "{head}");
    let (body, quit) = body.split_once("\r\n.\r\n").unwrap();
    assert_eq!(quit, "QUIT\r\n");
    assert_eq!(body.replace("\r\n", ""), base64(message::letter(&notice()).replace('\n', "\r\n").as_bytes()));
}

#[test]
fn what_a_relay_refuses_is_final_or_not() {
    let check = |greeting, answers, expect: (&str, bool)| {
        let (port, _said) = relay(greeting, answers);
        let setback = told(port, "ada@example.org").unwrap_err();
        let expect = (format!("127.0.0.1:{port}{}", expect.0), expect.1);
        assert_eq!((setback.reason, setback.is_final), expect);
    };
    check("554 no\r\n", &[], (" said 554 no", true));
    check("421 busy\r\n", &[], (" said 421 busy", false));
    check("220 hi\r\n", &[("RCPT", "550 no such user\r\n")], (" said 550 no such user", true));
    check("220 hi\r\n", &[("RCPT", "450 later\r\n")], (" said 450 later", false));
    check("220 hi\r\n", &[("DATA", "250 ok\r\n")], (" said 250 ok", false));
    check("HTTP/1.1 400 Bad\r\n", &[], (": 'HTTP/1.1 400 Bad' is no answer of a mail server", false));
}

#[test]
fn without_a_relay_there_is_no_mail() {
    let setback = send(&parcel(Channel::Email, "ada@example.org", DeliverySetV1::default()), "node1");
    assert!(setback.is_err_and(|setback| setback.is_final));
}

#[test]
fn a_head_is_of_plain_letters() {
    let check = |text: &str, expect: &str| assert_eq!(encoded_words(text), expect);
    check("job 1 (train) failed", "job 1 (train) failed");
    check("caf\u{e9}", "=?utf-8?B?Y2Fmw6k=?=");
    check("a\r\nBcc: b", "=?utf-8?B?YQ0KQmNjOiBi?=");
    check("=?utf-8?B?eA==?=", "=?utf-8?B?PT91dGYtOD9CP2VBPT0/PQ==?=");
    let long = encoded_words(&"\u{e9}".repeat(100));
    assert!(long.split("\r\n ").all(|word| word.len() <= 75 && word.starts_with("=?utf-8?B?")), "{long}");
}

#[test]
fn base64_is_as_everywhere() {
    let check = |text: &str, expect: &str| assert_eq!(base64(text.as_bytes()), expect);
    check("", "");
    check("f", "Zg==");
    check("fo", "Zm8=");
    check("foo", "Zm9v");
    check("foobar", "Zm9vYmFy");
}
