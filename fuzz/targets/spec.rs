//! A specification: every finding has a place in the file and can be shown, and a file without
//! errors is read the same once more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spec::{Colour, Severity, check};

fuzz_target!(|bytes: &[u8]| {
    let checked = check(bytes);
    let has_errors = checked.count(Severity::Error) > 0;
    assert_eq!(checked.cluster.is_none(), has_errors, "a cluster without errors, or errors without one");
    checked.to_text("fuzz.yaml", Colour::Plain);
    checked.to_json("fuzz.yaml");
    assert_eq!(checked.cluster, check(bytes).cluster);
});
