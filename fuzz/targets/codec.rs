//! An event of the log: what is read is written and read again as it was.
#![no_main]

use facts::codec::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(envelope) = decode(bytes) {
        assert_eq!(decode(&encode(&envelope)), Ok(envelope));
    }
});
