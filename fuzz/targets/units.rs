//! Quantities, times, money and names: what is read can be shown, and what is exact when shown is
//! read back as it was.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use units::{
    BitsPerSec, Bytes, BytesPerSec, Currency, Frequency, GpuModel, GpuName, GpuResource, GpuSeconds,
    MigProfile, Money, Nanos, Price, Share, Watts,
};

fn exact<T: FromStr<Err: Debug> + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let shown = value.to_string();
        assert_eq!(shown.parse::<T>().expect("what is shown can be read"), value, "{text:?} {shown:?}");
    }
}

fn shown<T: FromStr + Display>(text: &str) {
    drop(text.parse::<T>().map(|value| value.to_string()));
}

fuzz_target!(|text: &str| {
    exact::<Currency>(text);
    exact::<GpuModel>(text);
    exact::<MigProfile>(text);
    exact::<Money>(text);
    exact::<Price>(text);
    shown::<Bytes>(text);
    shown::<BytesPerSec>(text);
    shown::<Nanos>(text);
    shown::<Share>(text);
    shown::<Watts>(text);
    drop(text.parse::<BitsPerSec>());
    drop(text.parse::<Frequency>());
    drop(text.parse::<GpuName>());
    drop(text.parse::<GpuResource>());
    drop(text.parse::<GpuSeconds>());
    drop(Bytes::from_spec(text));
});
