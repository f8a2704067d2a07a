//! Instants as RFC 3339.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::Timestamp;
use utoipa::ToSchema;

/// An instant, in JSON RFC 3339 in UTC with as many digits as it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Time(pub Timestamp);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_nanosecond(i128::from(self.0.0))
            .expect("64 bits of nanoseconds end in the year 2262, within jiff's range");
        time.fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        let nanos = i64::try_from(time.as_nanosecond()).map_err(D::Error::custom)?;
        Ok(Self(Timestamp(nanos)))
    }
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Self(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instant_survives() {
        for nanos in [i64::MIN, -1, 0, 1, 1_764_549_921_000_000_001, i64::MAX] {
            let text = serde_json::to_string(&Time(Timestamp(nanos))).unwrap();
            assert_eq!(serde_json::from_str::<Time>(&text).unwrap().0.0, nanos, "{text}");
        }
        assert_eq!(serde_json::to_string(&Time(Timestamp(0))).unwrap(), "\"1970-01-01T00:00:00Z\"");
    }
}
