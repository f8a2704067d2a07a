//! The log's wire format: every event ever written must be read for ever.

extern crate fourplane_facts as facts;

mod sample;

use std::fmt::Write as _;

use facts::{decode, encode};
use proptest::prelude::*;

/// One line an event: its name and bytes, as the first release wrote them. Lines are added
/// when a kind or version is, and never changed: somebody's log holds these bytes.
const GOLDEN: &str = include_str!("data/events.golden");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("golden lines are hex"))
        .collect()
}

/// Lines of versions that are only read any more.
const OLD: [&str; 7] = [
    "team-set",
    "submitted-batch",
    "submitted-service",
    "submitted-interactive",
    "stop-ordered",
    "priority-class-set",
    "priority-class-gone",
];

#[test]
fn bytes_are_as_ever() {
    let is_written = |name: &str| !OLD.contains(&name);
    let written: Vec<String> = sample::envelopes()
        .iter()
        .filter(|(name, _)| is_written(name))
        .map(|(name, envelope)| format!("{name} {}", hex(&encode(envelope))))
        .collect();
    let golden: Vec<&str> =
        GOLDEN.lines().filter(|line| line.split(' ').next().is_some_and(is_written)).collect();
    assert_eq!(written, golden, "a format changed: append a version instead");
}

#[test]
fn every_golden_event_is_read() {
    let samples = sample::envelopes();
    for (line, (name, envelope)) in GOLDEN.lines().zip(&samples) {
        let (golden_name, bytes) = line.split_once(' ').unwrap();
        assert_eq!(golden_name, *name);
        assert_eq!(decode(&unhex(bytes)).as_ref(), Ok(envelope), "{name}");
    }
    assert_eq!(GOLDEN.lines().count(), samples.len());
}

#[test]
fn a_format_that_grew_has_another_number() {
    let lines = GOLDEN.lines().count();
    assert_eq!(
        facts::FORMAT as usize,
        lines,
        "set FORMAT in codec.rs to {lines}: older programs must see it"
    );
}

#[test]
fn a_cut_or_longer_event_is_refused() {
    for (name, envelope) in sample::envelopes() {
        let bytes = encode(&envelope);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{name} cut to {length}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(decode(&longer).is_err(), "{name} with a byte more");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn a_changed_byte_is_never_the_same_event(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), by in 1_u8..) {
        let samples = sample::envelopes();
        let (_, envelope) = which.get(&samples);
        let mut bytes = encode(envelope);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        if let Ok(read) = decode(&bytes) {
            // The chain's hash is what finds damage; the codec must only not call it equal,
            // unless the bytes are another spelling of the same number.
            prop_assert!(read != *envelope || encode(&read) != bytes);
        }
    }
}
