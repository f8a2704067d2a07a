//! Mail, handed to a relay that delivers it: plain SMTP, as a machine's own mail server takes it.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use ops::notify::{Delivery, Parcel, Setback};
use units::{BadAddress, HostPort, MailAddress};

use crate::stream::{Bounded, words};
use crate::{address, later, message, never};

/// All of a delivery is over by then.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A relay's answer has so many lines at most.
const LINES: usize = 64;
/// Each of so many bytes.
const LINE: u64 = 1_024;

pub(crate) fn send(parcel: &Parcel, host: &str) -> Result<String, Setback> {
    let wrong = |error: BadAddress| never(error.to_string());
    let to: MailAddress = parcel.delivery.target.to.parse().map_err(wrong)?;
    let Some(relay) = &parcel.settings.relay else {
        return Err(never("there is no mail server; `delivery.relay` of a specification names one"));
    };
    let relay = HostPort::parse(relay, 25).map_err(wrong)?;
    let from = parcel.settings.from.clone().unwrap_or_else(|| format!("fourplane@{host}"));
    let letter = letter(&parcel.delivery, &from, &to, host);
    let found = address::resolve(&relay).map_err(|error| later(format!("{relay} was not found: {error}")))?;
    let stream = Bounded::connect(&found, Instant::now() + TIMEOUT);
    let stream = stream.map_err(|error| later(format!("{relay}: {}", words(&error))))?;
    let mut talk = Talk { stream: BufReader::new(stream), relay: relay.to_string() };
    talk.answer(220)?;
    talk.say(&format!("EHLO {host}"), 250)?;
    talk.say(&format!("MAIL FROM:<{from}>"), 250)?;
    talk.say(&format!("RCPT TO:<{}>", to.as_str()), 250)?;
    talk.say("DATA", 354)?;
    let taken = talk.say(&format!("{letter}."), 250)?;
    // It is the relay's now, whatever it says to this.
    drop(talk.say("QUIT", 221));
    Ok(format!("{relay} took it: {taken}"))
}

struct Talk {
    stream: BufReader<Bounded>,
    relay: String,
}

impl Talk {
    fn say(&mut self, line: &str, expect: u16) -> Result<String, Setback> {
        let sent = self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes());
        sent.map_err(|error| self.failed(&error))?;
        self.answer(expect)
    }

    /// Reads an answer of one line or more. 5xx would be the same another time.
    fn answer(&mut self, expect: u16) -> Result<String, Setback> {
        for _ in 0..LINES {
            let mut line = Vec::new();
            let read = (&mut self.stream).take(LINE).read_until(b'\n', &mut line);
            read.map_err(|error| self.failed(&error))?;
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            let Some(code) = line.get(..3).and_then(|code| code.parse::<u16>().ok()) else {
                return Err(later(format!("{}: '{line}' is no answer of a mail server", self.relay)));
            };
            if line.as_bytes().get(3) == Some(&b'-') {
                continue;
            }
            return match code {
                code if code == expect => Ok(line),
                500..=599 => Err(never(format!("{} said {line}", self.relay))),
                _ => Err(later(format!("{} said {line}", self.relay))),
            };
        }
        Err(later(format!("{}: its answer has no end", self.relay)))
    }

    fn failed(&self, error: &std::io::Error) -> Setback {
        later(format!("{}: {}", self.relay, words(error)))
    }
}

/// The whole letter, each line with its end. Names of jobs are anybody's words: in the head they are
/// encoded, and the text is.
fn letter(delivery: &Delivery, from: &str, to: &MailAddress, host: &str) -> String {
    let notice = &delivery.notice;
    let date = jiff::Timestamp::now().to_zoned_datetime(jiff::tz::TimeZone::UTC);
    let date = jiff::fmt::rfc2822::to_string(&date).unwrap_or_default();
    let subject = encoded_words(&format!("Fourplane: {}", message::sentence(notice)));
    let text = base64(message::letter(notice).replace('\n', "\r\n").as_bytes());
    let lines = text.as_bytes().chunks(76).map(String::from_utf8_lossy);
    let text = lines.collect::<Vec<_>>().join("\r\n");
    let (to, id, at) = (to.as_str(), delivery.id, notice.at.0);
    format!(
        "Date: {date}\r\nFrom: <{from}>\r\nTo: <{to}>\r\nSubject: {subject}\r\n\
         Message-ID: <{id}.{at}@{host}>\r\nAuto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{text}\r\n"
    )
}

/// Text for a header: as it is where that is plain and short, else in words of RFC 2047.
fn encoded_words(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) && !text.contains("=?");
    if is_plain && text.len() <= 66 {
        return text.to_owned();
    }
    // A word has 75 bytes at most, and holds whole letters.
    let (mut words, mut part) = (Vec::new(), String::new());
    for letter in text.chars() {
        if part.len() + letter.len_utf8() > 42 {
            words.push(std::mem::take(&mut part));
        }
        part.push(letter);
    }
    words.push(part);
    let words = words.iter().map(|word| format!("=?utf-8?B?{}?=", base64(word.as_bytes())));
    words.collect::<Vec<_>>().join("\r\n ")
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| usize::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let letter = |at: usize| char::from(LETTERS[bits >> (18 - 6 * at) & 63]);
        text.extend((0..4).map(|at| if at > group.len() { '=' } else { letter(at) }));
    }
    text
}

#[cfg(test)]
#[path = "mail_tests.rs"]
mod tests;
