//! Amounts of hardware, and how users write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::Nanos;

/// An amount of memory or data in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A count of CPU cores (schedulable hardware threads).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cores(pub u32);

/// Why a written quantity was refused, with the way to write it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// A bare number where a unit decides the meaning.
    #[error("'{0}' has no unit; write {1}")]
    NoUnit(String, &'static str),
    /// A unit that does not exist, or not for this kind of amount.
    #[error("'{0}' is not a known unit; write {1}")]
    UnknownUnit(String, &'static str),
    /// Not a number at all.
    #[error("'{0}' is not a number; write {1}")]
    NotANumber(String, &'static str),
    /// A unit that two habits read differently.
    #[error("'{text}' may mean {} or {}; write one of them", readings[0], readings[1])]
    Ambiguous {
        /// As written.
        text: String,
        /// Both ways to write it plainly.
        readings: [String; 2],
    },
    /// Larger than can be counted.
    #[error("'{0}' is too large")]
    TooLarge(String),
}

const MEMORY_HELP: &str = "for example 512MiB, 16GiB or 2TiB";
const TIME_HELP: &str = "for example 90s, 30m, 2h, 1d, HH:MM:SS or D-HH:MM:SS";

/// Splits `text` into a whole number and what follows it.
fn split<'a>(text: &'a str, help: &'static str) -> Result<(u64, &'a str), QuantityError> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(QuantityError::NotANumber(text.to_owned(), help));
    }
    let number = number.parse().map_err(|_| QuantityError::TooLarge(text.to_owned()))?;
    Ok((number, unit.trim()))
}

impl FromStr for Bytes {
    type Err = QuantityError;

    /// Memory as flags take it: binary units, and Slurm's `64G` read as GiB.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (number, unit) = split(text, MEMORY_HELP)?;
        let shift = match unit {
            "" => return Err(QuantityError::NoUnit(text.to_owned(), MEMORY_HELP)),
            "B" => 0,
            "K" | "KiB" | "Ki" => 10,
            "M" | "MiB" | "Mi" => 20,
            "G" | "GiB" | "Gi" => 30,
            "T" | "TiB" | "Ti" => 40,
            _ => return Err(QuantityError::UnknownUnit(text.to_owned(), MEMORY_HELP)),
        };
        let scale = 1_u64 << shift;
        number.checked_mul(scale).map(Self).ok_or_else(|| QuantityError::TooLarge(text.to_owned()))
    }
}

impl FromStr for Nanos {
    type Err = QuantityError;

    /// `90s`, `30m`, `2h`, `1d`, `HH:MM:SS` or `D-HH:MM:SS`; a bare number is refused.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.contains(':') {
            return clock(text).ok_or_else(|| QuantityError::NotANumber(text.to_owned(), TIME_HELP));
        }
        let (number, unit) = split(text, TIME_HELP)?;
        let scale: u64 = match unit {
            "" => return Err(QuantityError::NoUnit(text.to_owned(), TIME_HELP)),
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(QuantityError::UnknownUnit(text.to_owned(), TIME_HELP)),
        };
        number.checked_mul(scale).map(Self).ok_or_else(|| QuantityError::TooLarge(text.to_owned()))
    }
}

/// `HH:MM:SS` or `D-HH:MM:SS`.
fn clock(text: &str) -> Option<Nanos> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text),
    };
    let mut parts = rest.split(':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || minutes > 59 || seconds > 59 {
        return None;
    }
    let hours = days.checked_mul(24)?.checked_add(hours)?;
    let secs = hours.checked_mul(3_600)?.checked_add(minutes * 60 + seconds)?;
    secs.checked_mul(1_000_000_000).map(Nanos)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        for (shift, unit) in units {
            let scale = 1_u64 << shift;
            if self.0 >= scale {
                let tenths = u128::from(self.0) * 10 / u128::from(scale);
                return if tenths.is_multiple_of(10) {
                    write!(f, "{} {unit}", tenths / 10)
                } else {
                    write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str, expect: Result<u64, &str>) {
        let got = text.parse::<Bytes>().map(|b| b.0).map_err(|e| e.to_string());
        assert_eq!(got, expect.map_err(str::to_owned), "{text}");
    }

    fn time(text: &str, expect: Result<u64, &str>) {
        let got = text.parse::<Nanos>().map(Nanos::as_secs).map_err(|e| e.to_string());
        assert_eq!(got, expect.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn memory_is_binary_and_needs_a_unit() {
        bytes("64G", Ok(64 << 30));
        bytes("64GiB", Ok(64 << 30));
        bytes("2 TiB", Ok(2 << 40));
        bytes("0B", Ok(0));
        bytes("64", Err("'64' has no unit; write for example 512MiB, 16GiB or 2TiB"));
        bytes("64GB", Err("'64GB' is not a known unit; write for example 512MiB, 16GiB or 2TiB"));
        bytes("-1G", Err("'-1G' is not a number; write for example 512MiB, 16GiB or 2TiB"));
        bytes("99999999T", Err("'99999999T' is too large"));
    }

    #[test]
    fn times_need_a_unit_or_three_fields() {
        time("90m", Ok(5_400));
        time("1d", Ok(86_400));
        time("01:02:03", Ok(3_723));
        time("2-00:00:01", Ok(172_801));
        time("30", Err("'30' has no unit; write for example 90s, 30m, 2h, 1d, HH:MM:SS or D-HH:MM:SS"));
        time(
            "4:00",
            Err("'4:00' is not a number; write for example 90s, 30m, 2h, 1d, HH:MM:SS or D-HH:MM:SS"),
        );
        time(
            "00:61:00",
            Err("'00:61:00' is not a number; write for example 90s, 30m, 2h, 1d, HH:MM:SS or D-HH:MM:SS"),
        );
    }

    #[test]
    fn amounts_read_back_as_people_say_them() {
        assert_eq!(Bytes(1536 << 20).to_string(), "1.5 GiB");
        assert_eq!(Bytes(12).to_string(), "12 B");
        assert_eq!(Nanos::from_secs(93_784).to_string(), "1-02:03:04");
        assert_eq!(Nanos::from_secs(59).to_string(), "00:00:59");
    }
}
