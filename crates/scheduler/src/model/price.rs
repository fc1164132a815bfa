//! Prices, in whole micro-dollars per hour.

use std::{fmt, iter::Sum, ops, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// A price in micro-dollars per hour. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(i64);

impl Price {
    /// Free.
    pub const ZERO: Self = Self(0);
    /// Dearer than anything.
    pub const MAX: Self = Self(i64::MAX);

    /// `micros` millionths of a dollar per hour; below zero counts as zero.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(if micros < 0 { 0 } else { micros })
    }

    /// Dollars per hour, rounded to the nearest micro-dollar. `None` for what is no price: NaN, infinite,
    /// negative, or past nine million million dollars.
    #[must_use]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let micros = (dollars * 1e6).round();
        // The comparison is false for NaN, too.
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
        (dollars >= 0.0 && micros < 9e18).then_some(Self(micros as i64))
    }

    /// Micro-dollars per hour.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Dollars per hour, for people and JSON; never for comparing.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for display only")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Sum, capped at [`Price::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Difference, zero at least.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self::from_micros(self.0.saturating_sub(other.0))
    }

    /// Multiple, capped at [`Price::MAX`].
    #[must_use]
    pub fn saturating_mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(i64::try_from(times).unwrap_or(i64::MAX)))
    }
}

impl ops::Add for Price {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl ops::AddAssign for Price {
    fn add_assign(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}

impl Sum for Price {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Self::saturating_add)
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dollars, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let digits = format!("{micros:06}");
        let shown = digits.trim_end_matches('0');
        write!(f, "{dollars}.{shown:0<2}")
    }
}

/// A text that is no price.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text:?} is no price: write dollars per hour, 0 or more")]
pub struct PriceError {
    /// The text as given.
    pub text: String,
}

impl FromStr for Price {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        let dollars = text.parse().ok().and_then(Self::from_dollars);
        dollars.ok_or_else(|| PriceError { text: text.to_owned() })
    }
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::from_dollars(dollars).ok_or_else(|| {
            de::Error::custom(format!("{dollars} is no price: write dollars per hour, 0 or more"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dollars_to_the_micro_dollar() {
        assert_eq!(Price::from_dollars(0.096), Some(Price::from_micros(96_000)));
        assert_eq!(Price::from_dollars(0.314_748_365), Some(Price::from_micros(314_748)));
        assert_eq!(Price::from_dollars(0.0), Some(Price::ZERO));
        for bad in [f64::NAN, f64::INFINITY, -0.01, f64::NEG_INFINITY, 1e300] {
            assert_eq!(Price::from_dollars(bad), None, "{bad}");
            assert!(bad.to_string().parse::<Price>().is_err(), "{bad}");
        }
        let refused = "cheap".parse::<Price>().unwrap_err().to_string();
        assert_eq!(refused, r#""cheap" is no price: write dollars per hour, 0 or more"#);
    }

    #[test]
    fn prints_at_least_cents_and_reads_them() {
        for (micros, text) in
            [(0, "0.00"), (96_000, "0.096"), (1_500_000, "1.50"), (1, "0.000001"), (12_340_000, "12.34")]
        {
            assert_eq!(Price::from_micros(micros).to_string(), text);
            assert_eq!(text.parse(), Ok(Price::from_micros(micros)));
        }
    }

    #[test]
    fn sums_saturate() {
        assert_eq!([Price::MAX, Price::from_micros(1)].into_iter().sum::<Price>(), Price::MAX);
        assert_eq!(Price::from_micros(1).saturating_sub(Price::MAX), Price::ZERO);
    }
}
