//! Exact money: a price per hour times a time.

use std::{
    iter::Sum,
    ops::{Add, AddAssign, Sub},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds of an hour.
const HOUR_MILLIS: u128 = 3_600_000;

/// Millionths of a dollar per hour, times milliseconds: what a node costs in a time, without a rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(u128);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A price, in millionths of a dollar per hour, times `millis`. A negative price counts as none.
    #[must_use]
    pub fn of(price: i64, millis: u64) -> Self {
        Self(u128::from(u64::try_from(price).unwrap_or(0)) * u128::from(millis))
    }

    /// Millionths of a dollar, rounded half up.
    #[must_use]
    pub const fn micros(self) -> u128 {
        (self.0 + HOUR_MILLIS / 2) / HOUR_MILLIS
    }

    /// Dollars, for a gauge or a counter.
    #[must_use]
    pub fn dollars(self) -> f64 {
        self.micros() as f64 / 1e6
    }

    /// Cents, rounded half up.
    #[must_use]
    pub const fn cents(self) -> u128 {
        let cent = 10_000 * HOUR_MILLIS;
        (self.0 + cent / 2) / cent
    }

    /// The amount times `part / whole`, rounded down; nothing of no whole.
    #[must_use]
    pub const fn scaled(self, part: u128, whole: u128) -> Self {
        match (self.0.checked_mul(part), whole) {
            (_, 0) => Self::ZERO,
            (Some(product), _) => Self(product / whole),
            (None, _) => Self((self.0 / whole).saturating_mul(part)),
        }
    }

    /// Divides the amount by weights: the parts add up to the whole, and each is within one unit of its exact share. Parts in
    /// order of the weights; all of it goes to the last if every weight is zero.
    #[must_use]
    pub fn divide(self, weights: &[u128]) -> Vec<Self> {
        let total: u128 = weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight));
        let mut parts = Vec::with_capacity(weights.len());
        let (mut given, mut seen) = (0_u128, 0_u128);
        for (position, weight) in weights.iter().enumerate() {
            seen = seen.saturating_add(*weight);
            let is_last = position + 1 == weights.len();
            // The cumulated share is rounded, so that no rounding adds up.
            let up_to = if is_last { self.0 } else { share(self.0, seen, total) };
            parts.push(Self(up_to.saturating_sub(given)));
            given = given.max(up_to);
        }
        parts
    }
}

/// `amount * part / total` without overflow: both are below 2^96 in any cluster, and are shortened if they aren't.
fn share(amount: u128, part: u128, total: u128) -> u128 {
    if total == 0 {
        return 0;
    }
    let (mut part, mut total) = (part, total);
    while amount.checked_mul(part).is_none() {
        part /= 2;
        total = (total / 2).max(1);
    }
    (amount.saturating_mul(part) / total).min(amount)
}

/// As text: many readers of JSON round large numbers.
impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(de::Error::custom)
    }
}

impl Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Amount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}
