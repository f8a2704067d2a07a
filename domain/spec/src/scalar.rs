//! Scalars: names, text, numbers and amounts with units.

use std::fmt;
use std::str::FromStr;

use units::{
    BitsPerSec, Bytes, BytesPerSec, Currency, Frequency, GpuModel, GpuNameError, GpuSeconds, MigProfile,
    Money, Nanos, Price, QuantityError, Share, Watts,
};

use crate::decode::{Context, Decode, integer, shorten};
use crate::finding::Code;
use crate::shape::{Form, Shape};
use crate::span::Span;
use crate::tree::Node;

/// The name of a thing in the file: lower-case letters, digits and hyphens, so that Slurm, Kubernetes,
/// file systems and labels all take it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// The longest, as in a DNS label.
    const LONGEST: usize = 63;

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn read(text: &str, span: Span, context: &mut Context<'_>) -> Self {
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let inner = text.bytes().all(|byte| letters(byte) || byte == b'-');
        let ends = text.bytes().next().is_some_and(letters) && text.bytes().last().is_some_and(letters);
        if inner && ends && text.len() <= Self::LONGEST {
            return Self(text.to_owned());
        }
        let message = format!(
            "'{}' is no name: names have lower-case letters, digits and hyphens between them, at most {}",
            shorten(text),
            Self::LONGEST
        );
        let plain =
            |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
        let better: String = text.chars().map(plain).take(Self::LONGEST).collect();
        let better = better.trim_matches('-');
        let hint = (!better.is_empty()).then(|| format!("for example {better}"));
        context.report(Code::BadName, span, message, hint);
        Self::default()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Decode for Name {
    const SHAPE: &'static Shape =
        &Shape::Text(&Form { what: "a name", units: "", pattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" });

    fn decode<'n>(node: &'n Node<'_>, context: &mut Context<'n>) -> Self {
        let Some((text, plain)) = context.text(node, "a name") else { return Self::default() };
        warn_of_other_readings(text, plain, node.span, context);
        Self::read(text, node.span, context)
    }

    fn placeholder() -> Self {
        Self::default()
    }
}

impl Decode for String {
    const SHAPE: &'static Shape = &Shape::Text(&Form { what: "text", units: "", pattern: "" });

    fn decode<'n>(node: &'n Node<'_>, context: &mut Context<'n>) -> Self {
        let Some((text, plain)) = context.text(node, "text") else { return Self::new() };
        warn_of_other_readings(text, plain, node.span, context);
        if text.chars().any(|letter| letter.is_control() && letter != '\n') {
            context.report(Code::BadForm, node.span, "text cannot have control characters".to_owned(), None);
        }
        text.to_owned()
    }

    fn placeholder() -> Self {
        Self::new()
    }
}

/// YAML 1.1 readers, which are many, take some plain texts for something else: `no`, `1:30`, `12.10`.
fn warn_of_other_readings(text: &str, plain: bool, span: Span, context: &mut Context<'_>) {
    let lower = text.to_ascii_lowercase();
    let all = |allowed: &str| text.chars().all(|letter| letter.is_ascii_digit() || allowed.contains(letter));
    let starts_as_number = text.starts_with(|letter: char| letter.is_ascii_digit());
    let other = match &*lower {
        "yes" | "no" | "on" | "off" | "true" | "false" | "y" | "n" => "true or false",
        _ if starts_as_number && all("._") && text.matches('.').count() <= 1 => "a number",
        _ if starts_as_number && all(":") => "a number in base 60",
        _ => return,
    };
    if plain {
        let message = format!("'{text}' is read as text here, but as {other} by other YAML readers");
        context.report(Code::OtherReading, span, message, Some(format!("write \"{text}\"")));
    }
}

/// Amounts and forms that parse from text.
trait Written: Sized {
    const FORM: &'static Form;
    type Error;

    fn read(text: &str) -> Result<Self, Self::Error>;
    fn complain(error: &Self::Error) -> (Code, String, Option<String>);
    fn stand_in() -> Self;
}

impl<T: Written> Decode for T {
    const SHAPE: &'static Shape = &Shape::Text(T::FORM);

    fn decode<'n>(node: &'n Node<'_>, context: &mut Context<'n>) -> Self {
        let Some((text, _)) = context.text(node, T::FORM.what) else { return T::stand_in() };
        T::read(text).unwrap_or_else(|error| {
            if context.findings.count_only(Code::BadForm) {
                return T::stand_in();
            }
            let (code, message, hint) = T::complain(&error);
            let by_field = matches!(code, Code::NoUnit | Code::BadQuantity | Code::BadForm);
            let hint = context.example().filter(|_| by_field).or(hint);
            context.report(code, node.span, message, hint);
            T::stand_in()
        })
    }

    fn placeholder() -> Self {
        T::stand_in()
    }
}

fn complain_of_quantity(error: &QuantityError) -> (Code, String, Option<String>) {
    let code = match error {
        QuantityError::NoUnit(..) => Code::NoUnit,
        QuantityError::Ambiguous { .. } => Code::AmbiguousUnit,
        QuantityError::UnknownUnit(..) | QuantityError::NotANumber(..) => Code::BadQuantity,
        QuantityError::TooLarge(_) => Code::OutOfRange,
    };
    let text = error.to_string();
    // Hints stand apart, after the message.
    let (message, hint) = text.split_once("; ").map_or((&*text, None), |(one, two)| (one, Some(two)));
    (code, message.to_owned(), hint.map(str::to_owned))
}

macro_rules! quantities {
    ($($type:ty: $what:literal, $units:literal, $pattern:literal, $read:expr, $stand_in:expr;)*) => {$(
        impl Written for $type {
            const FORM: &'static Form = &Form { what: $what, units: $units, pattern: $pattern };
            type Error = QuantityError;

            fn read(text: &str) -> Result<Self, QuantityError> {
                $read(text)
            }

            fn complain(error: &QuantityError) -> (Code, String, Option<String>) {
                complain_of_quantity(error)
            }

            fn stand_in() -> Self {
                $stand_in
            }
        }
    )*};
}

quantities! {
    Bytes: "an amount of data", "B, KB, MB, GB, TB, PB (decimal) or KiB, MiB, GiB, TiB, PiB (binary)",
        r"^[0-9]+(\.[0-9]+)? ?([kKMGTP]?B|[KMGTP]iB?)$", Self::from_spec, Self(0);
    BytesPerSec: "a rate in bytes", "MB/s, GB/s, TB/s or MiB/s, GiB/s, TiB/s",
        r"^[0-9]+(\.[0-9]+)? ?([kKMGTP]?B|[KMGTP]iB?)/s$", FromStr::from_str, Self(0);
    BitsPerSec: "a rate in bits", "Mb/s, Gb/s or Tb/s",
        r"^[0-9]+(\.[0-9]+)? ?[MGT]b(it)?/s$", FromStr::from_str, Self(0);
    Watts: "electric power", "W, kW or MW", r"^[0-9]+(\.[0-9]+)? ?[kM]?W$", FromStr::from_str, Self(0);
    GpuSeconds: "GPUs times time", "GPU-seconds, GPU-hours or GPU-days",
        r"^[0-9]+(\.[0-9]+)? ?GPU-(seconds|hours?|days)$", FromStr::from_str, Self(0);
    Nanos: "a length of time", "us, ms, s, min, h, d, or HH:MM:SS and D-HH:MM:SS",
        r"^([0-9]+ ?(us|ms|s|m|min|h|d)|([0-9]+-)?[0-9]+:[0-9]{2}:[0-9]{2})$", FromStr::from_str, Self(0);
    Share: "a share", "%", r"^[0-9]+(\.[0-9]+)? ?%$", FromStr::from_str, Self::default();
    Currency: "a currency", "", "^[A-Z]{3}$", FromStr::from_str, stand_in_currency();
    Money: "an amount of money", "a currency such as USD", r"^[0-9]+(\.[0-9]+)? [A-Z]{3}$",
        FromStr::from_str, stand_in_money();
    Price: "a price", "a currency, and what it is for: per GPU-hour, per month, per kWh, ...",
        r"^[0-9]+(\.[0-9]+)? [A-Z]{3}( per |/).+$", FromStr::from_str,
        Self { amount: stand_in_money(), per: units::Per::Unit };
    Frequency: "how often", "per second, minute, hour, day, week, month, quarter or year",
        r"^[0-9]+(\.[0-9]+)? per [a-z]+$", FromStr::from_str,
        Self { thousandths: 0, per: units::Window::Month };
}

fn stand_in_currency() -> Currency {
    "XXX".parse().expect("the code for no currency is a code")
}

fn stand_in_money() -> Money {
    Money { nanos: 0, currency: stand_in_currency() }
}

fn complain_of_gpu(error: &GpuNameError) -> (Code, String, Option<String>) {
    let text = error.to_string();
    match error {
        GpuNameError::Ambiguous { .. } => (Code::AmbiguousGpu, text, Some("write one of them".to_owned())),
        GpuNameError::Unknown(name) => {
            let names: Vec<_> = GpuModel::all().map(GpuModel::name).collect();
            let meant = crate::nearest::nearest(name, names);
            let hint = meant
                .map_or("`fourplane explain compute.pools.shape.gpu` lists the models".to_owned(), |meant| {
                    format!("did you mean '{meant}'?")
                });
            (Code::UnknownGpu, text, Some(hint))
        }
        GpuNameError::NoSuchProfile { .. } | GpuNameError::NotAProfile(_) => (Code::BadForm, text, None),
    }
}

impl Written for GpuModel {
    const FORM: &'static Form = &Form { what: "a GPU model", units: "", pattern: "" };
    type Error = GpuNameError;

    fn read(text: &str) -> Result<Self, GpuNameError> {
        text.parse()
    }

    fn complain(error: &GpuNameError) -> (Code, String, Option<String>) {
        complain_of_gpu(error)
    }

    fn stand_in() -> Self {
        Self::all().next().expect("the table has models")
    }
}

impl Written for MigProfile {
    const FORM: &'static Form = &Form { what: "a MIG profile", units: "", pattern: "^[0-9]g\\.[0-9]+gb" };
    type Error = GpuNameError;

    fn read(text: &str) -> Result<Self, GpuNameError> {
        text.parse()
    }

    fn complain(error: &GpuNameError) -> (Code, String, Option<String>) {
        complain_of_gpu(error)
    }

    fn stand_in() -> Self {
        Self { slices: 1, memory_gb: 1, extras: units::MigExtras::Plain }
    }
}

/// A calendar day, `2026-11-30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// From 1970 to 9999.
    pub year: u16,
    /// From 1.
    pub month: u8,
    /// From 1.
    pub day: u8,
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// One amount for each of another: `2:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The first, in thousandths.
    pub first: u32,
    /// The second, in thousandths; never 0.
    pub second: u32,
}

/// Faults, or interruptions, for a number of days of something: `4.18 per 1000 node-days`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureRate {
    /// Thousandths of one.
    pub thousandths: u64,
    /// In so many days of one.
    pub days: u32,
    /// One what.
    pub of: FailureBasis,
}

/// What a [`FailureRate`] counts days of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureBasis {
    /// A node in service.
    Node,
    /// A job that runs, whatever its size.
    Job,
    /// A failure domain: a leaf switch, a rack.
    Domain,
}

/// A number of nodes: `8 nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nodes(pub u32);

/// A label and the value it must have: `customer=acme`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// Before the sign.
    pub key: String,
    /// After it.
    pub value: String,
}

/// Thousandths of a decimal number with at most three places.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 3 || text.ends_with('.') {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(fraction)
}

fn date(text: &str) -> Option<Date> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() == 10 && bytes[4] == b'-' && bytes[7] == b'-';
    if !shaped || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return None;
    }
    let (year, month, day) = (text[..4].parse().ok()?, text[5..7].parse().ok()?, text[8..].parse().ok()?);
    let leap = u16::is_multiple_of(year, 4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 => 28 + u8::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (year >= 1970 && (1..=days).contains(&day)).then_some(Date { year, month, day })
}

fn ratio(text: &str) -> Option<Ratio> {
    let (first, second) = text.split_once(':')?;
    let part = |text: &str| u32::try_from(thousandths(text)?).ok().filter(|part| *part > 0);
    Some(Ratio { first: part(first)?, second: part(second)? })
}

fn failure_rate(text: &str) -> Option<FailureRate> {
    let (count, of) = text.split_once(" per ")?;
    let (days, of) = of.split_once(' ').unwrap_or(("1", of));
    let of = match of {
        "node-days" | "node-day" => FailureBasis::Node,
        "job-days" | "job-day" => FailureBasis::Job,
        "domain-days" | "domain-day" => FailureBasis::Domain,
        _ => return None,
    };
    let days = days.parse().ok().filter(|days| *days > 0)?;
    Some(FailureRate { thousandths: thousandths(count)?, days, of })
}

fn nodes(text: &str) -> Option<Nodes> {
    let count = text.strip_suffix(" nodes").or_else(|| text.strip_suffix(" node"))?;
    count.parse().ok().filter(|count| *count > 0).map(Nodes)
}

fn label(text: &str) -> Option<Label> {
    let (key, value) = text.split_once('=')?;
    let plain = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
    (plain(key) && plain(value)).then(|| Label { key: key.to_owned(), value: value.to_owned() })
}

macro_rules! forms {
    ($($type:ty: $what:literal, $example:literal, $pattern:literal, $read:expr, $stand_in:expr;)*) => {$(
        impl Written for $type {
            const FORM: &'static Form = &Form { what: $what, units: "", pattern: $pattern };
            type Error = String;

            fn read(text: &str) -> Result<Self, String> {
                $read(text).ok_or_else(|| text.to_owned())
            }

            fn complain(text: &String) -> (Code, String, Option<String>) {
                let message = format!("'{}' is not {}", shorten(text), $what);
                (Code::BadForm, message, Some(concat!("write for example ", $example).to_owned()))
            }

            fn stand_in() -> Self {
                $stand_in
            }
        }
    )*};
}

forms! {
    Date: "a date", "2026-11-30", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", date, Self { year: 1970, month: 1, day: 1 };
    Ratio: "a ratio", "\"2:1\"", r"^[0-9]+(\.[0-9]+)?:[0-9]+(\.[0-9]+)?$", ratio,
        Self { first: 1_000, second: 1_000 };
    FailureRate: "a failure rate", "4.18 per 1000 node-days",
        r"^[0-9]+(\.[0-9]+)? per ([0-9]+ )?(node|job|domain)-days?$", failure_rate,
        Self { thousandths: 0, days: 1, of: FailureBasis::Node };
    Nodes: "a number of nodes", "8 nodes", "^[0-9]+ nodes?$", nodes, Self(1);
    Label: "a label and its value", "customer=acme", "^[^ =]+=[^ ]+$", label,
        Self { key: String::new(), value: String::new() };
}

/// A whole number that is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u32);

macro_rules! integers {
    ($($type:ty: $least:expr, $most:expr, $make:expr;)*) => {$(
        impl Decode for $type {
            const SHAPE: &'static Shape = &Shape::Integer { least: $least, most: $most };

            fn decode<'n>(node: &'n Node<'_>, context: &mut Context<'n>) -> Self {
                let number = integer(node, context, $least, $most);
                $make(number.try_into().expect("within the bounds of the type"))
            }

            fn placeholder() -> Self {
                $make($least.max(0).try_into().expect("within the bounds of the type"))
            }
        }
    )*};
}

/// A million of anything is more than any cluster has, and leaves sums far from any overflow.
const MANY: i64 = 1_000_000;

integers! {
    u32: 0_i64, MANY, std::convert::identity::<u32>;
    i32: -MANY, MANY, std::convert::identity::<i32>;
    Count: 1_i64, MANY, Self;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(date("2024-02-29"), Some(Date { year: 2024, month: 2, day: 29 }));
        for wrong in ["2023-02-29", "2024-13-01", "2024-00-10", "24-01-01", "2024-1-1", "2024-01-01T00"] {
            assert_eq!(date(wrong), None, "{wrong}");
        }
        assert_eq!(ratio("2.5:1"), Some(Ratio { first: 2_500, second: 1_000 }));
        assert_eq!((ratio("1:0"), ratio("1"), ratio("1:1:1")), (None, None, None));
        let rate = FailureRate { thousandths: 4_180, days: 1_000, of: FailureBasis::Node };
        assert_eq!(failure_rate("4.18 per 1000 node-days"), Some(rate));
        assert_eq!(failure_rate("1 per job-day").map(|rate| rate.of), Some(FailureBasis::Job));
        assert_eq!((failure_rate("1 per 0 node-days"), failure_rate("1 per week")), (None, None));
        assert_eq!((nodes("8 nodes"), nodes("0 nodes"), nodes("8")), (Some(Nodes(8)), None, None));
        assert_eq!(
            (label("a=").is_some(), label("a b=c").is_some(), label("a=b").is_some()),
            (false, false, true)
        );
    }
}
