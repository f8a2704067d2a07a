//! Rates, power, shares and GPU time, and how a specification writes amounts: with a unit, always,
//! and with decimals where people use them. What is smaller than the unit counted is rounded down.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, QuantityError};

/// A rate in bytes a second: disks, object stores, `busbw`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BytesPerSec(pub u64);

/// A rate in bits a second, as network links are sold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BitsPerSec(pub u64);

/// Electric power in watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Watts(pub u64);

/// Whole GPUs times seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuSeconds(pub u64);

/// A part of a whole, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(u32);

impl Share {
    /// The whole.
    pub const WHOLE: Self = Self(1_000_000);

    /// In millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }
}

impl BitsPerSec {
    /// The same rate in whole bytes a second.
    pub fn in_bytes(self) -> BytesPerSec {
        BytesPerSec(self.0 / 8)
    }
}

/// A decimal number as written: `digits / 10^places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    /// Digits with at most one point; more than nine places are finer than anything counted here.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 9 || whole.len() > 27 {
            return None;
        }
        let places = u32::try_from(fraction.len()).ok()?;
        Some(Self { digits: format!("{whole}{fraction}").parse().ok()?, places })
    }

    /// The number times `scale`, rounded down.
    pub(crate) fn times(self, scale: u128) -> Option<u128> {
        Some(self.digits.checked_mul(scale)? / 10_u128.pow(self.places))
    }
}

/// Reads `NUMBER UNIT`; `units` gives each unit's size, `help` shows how to write it.
fn measured(text: &str, help: &'static str, units: &[(&str, u128)]) -> Result<u64, QuantityError> {
    let (number, unit) = split(text, help)?;
    if unit.is_empty() {
        return Err(QuantityError::NoUnit(text.trim().to_owned(), help));
    }
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(QuantityError::UnknownUnit(text.trim().to_owned(), help));
    };
    let amount = number.times(*scale).and_then(|amount| u64::try_from(amount).ok());
    amount.ok_or_else(|| QuantityError::TooLarge(text.trim().to_owned()))
}

/// The number at the start of `text`, and what follows it.
pub(crate) fn split<'a>(text: &'a str, help: &'static str) -> Result<(Decimal, &'a str), QuantityError> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let number = Decimal::parse(&text[..end]);
    let number = number.ok_or_else(|| QuantityError::NotANumber(text.to_owned(), help))?;
    Ok((number, text[end..].trim_start()))
}

const DATA_HELP: &str = "for example 512 MiB, 140 GiB or 40 TB";
const BYTE_RATE_HELP: &str = "for example 350 GB/s";
const BIT_RATE_HELP: &str = "for example 400 Gb/s";
const POWER_HELP: &str = "for example 700 W or 10.2 kW";
const GPU_TIME_HELP: &str = "for example 120 GPU-hours";
const SHARE_HELP: &str = "for example 60%";

const K: u128 = 1_000;
const DATA: &[(&str, u128)] = &[
    ("B", 1),
    ("KB", K),
    ("kB", K),
    ("MB", K * K),
    ("GB", K * K * K),
    ("TB", K * K * K * K),
    ("PB", K * K * K * K * K),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
];

impl Bytes {
    /// As a specification writes data: `GiB` is binary, `GB` decimal, and `G` alone is refused, for
    /// Slurm and Kubernetes read it differently.
    pub fn from_spec(text: &str) -> Result<Self, QuantityError> {
        if let Ok((_, unit @ ("K" | "M" | "G" | "T" | "P"))) = split(text, DATA_HELP) {
            let number = text.trim().trim_end_matches(unit).trim_end();
            return Err(QuantityError::Ambiguous {
                text: text.trim().to_owned(),
                readings: [format!("{number} {unit}iB"), format!("{number} {unit}B")],
            });
        }
        measured(text, DATA_HELP, DATA).map(Self)
    }
}

impl FromStr for BytesPerSec {
    type Err = QuantityError;

    /// `50 GB/s`, `2 GiB/s`; bits are refused here.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        let Some(data) = text.strip_suffix("/s") else {
            let (_, unit) = split(text, BYTE_RATE_HELP)?;
            let text = text.to_owned();
            return Err(if unit.is_empty() {
                QuantityError::NoUnit(text, BYTE_RATE_HELP)
            } else {
                QuantityError::UnknownUnit(text, BYTE_RATE_HELP)
            });
        };
        let rate = measured(data, BYTE_RATE_HELP, DATA);
        rate.map(Self).map_err(|_| QuantityError::UnknownUnit(text.to_owned(), BYTE_RATE_HELP))
    }
}

impl FromStr for BitsPerSec {
    type Err = QuantityError;

    /// `400 Gb/s` or `400 Gbit/s`, decimal; bytes are refused here.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let units = [
            ("Mb/s", K * K),
            ("Mbit/s", K * K),
            ("Gb/s", K * K * K),
            ("Gbit/s", K * K * K),
            ("Tb/s", K * K * K * K),
            ("Tbit/s", K * K * K * K),
        ];
        measured(text, BIT_RATE_HELP, &units).map(Self)
    }
}

impl FromStr for Watts {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        measured(text, POWER_HELP, &[("W", 1), ("kW", K), ("MW", K * K)]).map(Self)
    }
}

impl FromStr for GpuSeconds {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let units = [("GPU-seconds", 1), ("GPU-hours", 3_600), ("GPU-hour", 3_600), ("GPU-days", 86_400)];
        measured(text, GPU_TIME_HELP, &units).map(Self)
    }
}

impl FromStr for Share {
    type Err = QuantityError;

    /// `60%`, at most 100%.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let share = measured(text, SHARE_HELP, &[("%", 10_000)])?;
        let share = u32::try_from(share).map(Self).ok().filter(|share| *share <= Self::WHOLE);
        share.ok_or_else(|| QuantityError::TooLarge(text.trim().to_owned()))
    }
}

/// Writes an amount in the largest unit it fills, with up to three decimals.
fn decimal(f: &mut fmt::Formatter<'_>, amount: u64, units: &[(u64, &str)], small: &str) -> fmt::Result {
    let Some((scale, unit)) = units.iter().find(|(scale, _)| amount >= *scale) else {
        return write!(f, "{amount} {small}");
    };
    let (whole, thousandths) = (amount / scale, u128::from(amount % scale) * 1_000 / u128::from(*scale));
    if thousandths == 0 {
        return write!(f, "{whole} {unit}");
    }
    let fraction = format!("{thousandths:03}");
    write!(f, "{whole}.{} {unit}", fraction.trim_end_matches('0'))
}

impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000_000, "TB/s"), (1_000_000_000, "GB/s"), (1_000_000, "MB/s")];
        decimal(f, self.0, &units, "B/s")
    }
}

impl fmt::Display for Watts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, &[(1_000_000, "MW"), (1_000, "kW")], "W")
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let fraction = format!("{rest:04}");
        write!(f, "{whole}.{}%", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: FromStr<Err = QuantityError>>(text: &str, count: fn(T) -> u64, expect: Result<u64, &str>) {
        let got = text.parse::<T>().map(count).map_err(|error| error.to_string());
        assert_eq!(got, expect.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn data_in_a_spec() {
        let check = |text: &str, expect: Result<u64, &str>| {
            let got = Bytes::from_spec(text).map(|bytes| bytes.0).map_err(|error| error.to_string());
            assert_eq!(got, expect.map_err(str::to_owned), "{text}");
        };
        check("64 GiB", Ok(64 << 30));
        check("64Gi", Ok(64 << 30));
        check("64 GB", Ok(64_000_000_000));
        check("1.1 TiB", Ok(1_209_462_790_553));
        check("64G", Err("'64G' may mean 64 GiB or 64 GB; write one of them"));
        check("1.5 T", Err("'1.5 T' may mean 1.5 TiB or 1.5 TB; write one of them"));
        check("64", Err("'64' has no unit; write for example 512 MiB, 140 GiB or 40 TB"));
        check("64 Gb", Err("'64 Gb' is not a known unit; write for example 512 MiB, 140 GiB or 40 TB"));
        check("1_000 GB", Err("'1_000 GB' is not a known unit; write for example 512 MiB, 140 GiB or 40 TB"));
        check(".5 GB", Err("'.5 GB' is not a number; write for example 512 MiB, 140 GiB or 40 TB"));
        check("99999999 TB", Err("'99999999 TB' is too large"));
    }

    #[test]
    fn rates_power_and_shares() {
        check("50 GB/s", |rate: BytesPerSec| rate.0, Ok(50_000_000_000));
        check("2GiB/s", |rate: BytesPerSec| rate.0, Ok(2 << 30));
        check(
            "400 Gb/s",
            |rate: BytesPerSec| rate.0,
            Err("'400 Gb/s' is not a known unit; write for example 350 GB/s"),
        );
        check("50", |rate: BytesPerSec| rate.0, Err("'50' has no unit; write for example 350 GB/s"));
        check("400 Gb/s", |rate: BitsPerSec| rate.0, Ok(400_000_000_000));
        check(
            "50 GB/s",
            |rate: BitsPerSec| rate.0,
            Err("'50 GB/s' is not a known unit; write for example 400 Gb/s"),
        );
        check("10.2 kW", |power: Watts| power.0, Ok(10_200));
        check("1.5 GPU-hours", |time: GpuSeconds| time.0, Ok(5_400));
        check("62.5%", |share: Share| share.0.into(), Ok(625_000));
        check("101%", |share: Share| share.0.into(), Err("'101%' is too large"));
        check("0.6", |share: Share| share.0.into(), Err("'0.6' has no unit; write for example 60%"));
    }

    #[test]
    fn amounts_are_shown_as_they_are_written() {
        assert_eq!(BytesPerSec(350_000_000_000).to_string(), "350 GB/s");
        assert_eq!(Watts(10_200).to_string(), "10.2 kW");
        assert_eq!(Share(625_000).to_string(), "62.5%");
        assert_eq!(Share::WHOLE.to_string(), "100%");
    }
}
