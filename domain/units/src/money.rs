//! Money in integer nano-units of a currency, and prices: money per something.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::amount::{Decimal, split};
use crate::quantity::QuantityError;

/// A currency by its three-letter code (ISO 4217).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Currency([u8; 3]);

/// An amount of money: nano-units of its currency, so that splits lose nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Money {
    /// Billionths of a unit of the currency.
    pub nanos: i128,
    /// The currency.
    pub currency: Currency,
}

/// Money for each of something: `2.35 USD per GPU-hour`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Price {
    /// For one.
    pub amount: Money,
    /// Of what.
    pub per: Per,
}

/// So many in a span of time: `40 per month`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frequency {
    /// Thousandths of one.
    pub thousandths: u64,
    /// The span.
    pub per: Window,
}

/// A span of time that repeats. Days and longer follow the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Window {
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 3,600 s.
    Hour,
    /// A calendar day.
    Day,
    /// Seven days, from Monday.
    Week,
    /// A calendar month.
    Month,
    /// Three months, from January.
    Quarter,
    /// A calendar year.
    Year,
}

/// What a price is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Per {
    /// A span of time.
    Time(Window),
    /// A whole GPU for an hour.
    GpuHour,
    /// A whole GPU for a month.
    GpuMonth,
    /// A node for an hour.
    NodeHour,
    /// A node for a month.
    NodeMonth,
    /// A core for an hour.
    CoreHour,
    /// A kilowatt-hour of energy.
    KilowattHour,
    /// A kilowatt of rented power for a month.
    KilowattMonth,
    /// 10^9 bytes moved.
    Gigabyte,
    /// 10^12 bytes kept for a month.
    TerabyteMonth,
    /// 10^6 tokens.
    MillionTokens,
    /// One accepted unit of work.
    Unit,
}

const WINDOWS: &[(Window, &str)] = &[
    (Window::Second, "second"),
    (Window::Minute, "minute"),
    (Window::Hour, "hour"),
    (Window::Day, "day"),
    (Window::Week, "week"),
    (Window::Month, "month"),
    (Window::Quarter, "quarter"),
    (Window::Year, "year"),
];

const OTHERS: &[(Per, &str)] = &[
    (Per::GpuHour, "GPU-hour"),
    (Per::GpuMonth, "GPU-month"),
    (Per::NodeHour, "node-hour"),
    (Per::NodeMonth, "node-month"),
    (Per::CoreHour, "core-hour"),
    (Per::KilowattHour, "kWh"),
    (Per::KilowattMonth, "kW-month"),
    (Per::Gigabyte, "GB"),
    (Per::TerabyteMonth, "TB-month"),
    (Per::MillionTokens, "Mtok"),
    (Per::Unit, "unit"),
];

const MONEY_HELP: &str = "for example 1200 USD";
const PRICE_HELP: &str = "for example 2.35 USD per GPU-hour";
const FREQUENCY_HELP: &str = "for example 40 per month";

impl Currency {
    /// The three letters.
    pub fn code(&self) -> &str {
        std::str::from_utf8(&self.0).expect("made of ASCII letters only")
    }
}

impl FromStr for Currency {
    type Err = QuantityError;

    /// Three capital letters.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let code = <[u8; 3]>::try_from(text.as_bytes()).ok();
        let code = code.filter(|code| code.iter().all(u8::is_ascii_uppercase));
        code.map(Self).ok_or_else(|| QuantityError::UnknownUnit(text.to_owned(), "a currency such as USD"))
    }
}

impl FromStr for Money {
    type Err = QuantityError;

    /// `1200 USD`, with up to nine decimals.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        money(text, MONEY_HELP)
    }
}

fn money(text: &str, help: &'static str) -> Result<Money, QuantityError> {
    let (number, unit) = split(text, help)?;
    if unit.is_empty() {
        return Err(QuantityError::NoUnit(text.trim().to_owned(), help));
    }
    let currency = unit.parse().map_err(|_| QuantityError::UnknownUnit(text.trim().to_owned(), help))?;
    let nanos = nanos(number).ok_or_else(|| QuantityError::TooLarge(text.trim().to_owned()))?;
    Ok(Money { nanos, currency })
}

/// At most 10^18 units, so that sums of many cannot overflow.
fn nanos(number: Decimal) -> Option<i128> {
    let nanos = i128::try_from(number.times(1_000_000_000)?).ok()?;
    (nanos <= 10_i128.pow(27)).then_some(nanos)
}

/// Cuts `AMOUNT per WORD` or `AMOUNT/WORD` in two.
fn cut<'a>(text: &'a str, help: &'static str) -> Result<(&'a str, &'a str), QuantityError> {
    let parts = text.split_once(" per ").or_else(|| text.split_once('/'));
    let (amount, per) = parts.ok_or_else(|| QuantityError::NoUnit(text.trim().to_owned(), help))?;
    Ok((amount.trim(), per.trim()))
}

impl FromStr for Price {
    type Err = QuantityError;

    /// `2.35 USD per GPU-hour`; case does not matter in what it is for.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (amount, per) = cut(text, PRICE_HELP)?;
        let amount = money(amount, PRICE_HELP)?;
        let other = OTHERS.iter().find(|(_, word)| word.eq_ignore_ascii_case(per)).map(|(per, _)| *per);
        let per = other.or_else(|| window(per).map(Per::Time));
        let per = per.ok_or_else(|| QuantityError::UnknownUnit(text.trim().to_owned(), PRICE_HELP))?;
        Ok(Self { amount, per })
    }
}

fn window(word: &str) -> Option<Window> {
    WINDOWS.iter().find(|(_, name)| *name == word).map(|(window, _)| *window)
}

impl FromStr for Frequency {
    type Err = QuantityError;

    /// `40 per month`, with up to three decimals that count.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (number, per) = cut(text, FREQUENCY_HELP)?;
        let per =
            window(per).ok_or_else(|| QuantityError::UnknownUnit(text.trim().to_owned(), FREQUENCY_HELP))?;
        let (number, rest) = split(number, FREQUENCY_HELP)?;
        if !rest.is_empty() {
            return Err(QuantityError::NotANumber(text.trim().to_owned(), FREQUENCY_HELP));
        }
        let thousandths = number.times(1_000).and_then(|amount| u64::try_from(amount).ok());
        let thousandths = thousandths.ok_or_else(|| QuantityError::TooLarge(text.trim().to_owned()))?;
        Ok(Self { thousandths, per })
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.nanos < 0 { "-" } else { "" };
        let size = self.nanos.unsigned_abs();
        let fraction = format!("{:09}", size % 1_000_000_000);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{}{point}{fraction} {}", size / 1_000_000_000, self.currency)
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = |window| WINDOWS.iter().find(|(known, _)| *known == window).map(|(_, word)| *word);
        let word = match self {
            Self::Time(time) => window(*time),
            other => OTHERS.iter().find(|(known, _)| known == other).map(|(_, word)| *word),
        };
        f.write_str(word.expect("every variant has its word, as the tests show"))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.amount, self.per)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<&str, &str>) {
        let got = text.parse::<Price>().map(|price| price.to_string()).map_err(|error| error.to_string());
        assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned), "{text}");
    }

    #[test]
    fn prices() {
        check("2.35 USD per GPU-hour", Ok("2.35 USD per GPU-hour"));
        check("2.35 USD/gpu-hour", Ok("2.35 USD per GPU-hour"));
        check("120000 USD per month", Ok("120000 USD per month"));
        check("0.000000001 EUR per kWh", Ok("0.000000001 EUR per kWh"));
        check("2.35 USD", Err("'2.35 USD' has no unit; write for example 2.35 USD per GPU-hour"));
        check("$2.35 per GPU-hour", Err("'$2.35' is not a number; write for example 2.35 USD per GPU-hour"));
        check("2.35 per GPU-hour", Err("'2.35' has no unit; write for example 2.35 USD per GPU-hour"));
        check(
            "2 USD per fortnight",
            Err("'2 USD per fortnight' is not a known unit; write for example 2.35 USD per GPU-hour"),
        );
        check("9999999999999999999 USD per day", Err("'9999999999999999999 USD' is too large"));
    }

    #[test]
    fn every_basis_is_read_back() {
        let all =
            OTHERS.iter().map(|(per, _)| *per).chain(WINDOWS.iter().map(|(window, _)| Per::Time(*window)));
        for per in all {
            let price = Price { amount: "1 USD".parse().expect("money"), per };
            assert_eq!(price.to_string().parse(), Ok(price));
        }
    }

    #[test]
    fn frequencies() {
        let check = |text: &str, expect: Result<(u64, Window), &str>| {
            let got = text.parse::<Frequency>().map(|one| (one.thousandths, one.per));
            assert_eq!(got.map_err(|error| error.to_string()), expect.map_err(str::to_owned), "{text}");
        };
        check("40 per month", Ok((40_000, Window::Month)));
        check("0.5 per second", Ok((500, Window::Second)));
        check("40", Err("'40' has no unit; write for example 40 per month"));
        check(
            "40 runs per month",
            Err("'40 runs per month' is not a number; write for example 40 per month"),
        );
        check("40 per moon", Err("'40 per moon' is not a known unit; write for example 40 per month"));
    }

    #[test]
    fn money_is_shown_exactly() {
        let check = |nanos, expect: &str| {
            let money = Money { nanos, currency: "USD".parse().expect("a currency") };
            assert_eq!(money.to_string(), expect);
        };
        check(1_500_000_000, "1.5 USD");
        check(-1, "-0.000000001 USD");
        check(0, "0 USD");
    }
}
