//! Kubernetes quantities, exactly.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

const NANO: i128 = 1_000_000_000;
/// Kubernetes caps quantities at 2^63 - 1 whole units; so does this type.
const MAX_NANOS: i128 = i64::MAX as i128 * NANO;

/// A Kubernetes quantity, in whole billionths.
///
/// Exact for everything that the format can say down to `1n`; smaller fractions are rounded away from
/// zero and larger magnitudes saturate at 2^63 - 1, as the API server does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// Text that is not a quantity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "failed to read {text:?} as a quantity: write a number with an optional suffix, such as 500m, 1.5 or 64Gi"
)]
pub struct QuantityError {
    /// The text as given.
    pub text: String,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `units` whole units.
    #[must_use]
    pub const fn from_units(units: i64) -> Self {
        Self(units as i128 * NANO)
    }

    /// `millis` thousandths.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis as i128 * 1_000_000)
    }

    /// Whole units, rounded up as kube-scheduler does.
    #[must_use]
    pub fn units(self) -> i64 {
        saturate(ceil_div(self.0, NANO))
    }

    /// Thousandths, rounded up as kube-scheduler does.
    #[must_use]
    pub fn millis(self) -> i64 {
        saturate(ceil_div(self.0, 1_000_000))
    }

    /// Millionths, rounded down: what an amount of dollars is as a [`Price`](crate::Price).
    #[must_use]
    pub fn micros_floor(self) -> i64 {
        saturate(self.0.div_euclid(1_000))
    }

    /// True below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }
}

fn ceil_div(value: i128, by: i128) -> i128 {
    let quotient = value.div_euclid(by);
    if value.rem_euclid(by) == 0 { quotient } else { quotient + 1 }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text.trim()).map(Self).ok_or_else(|| QuantityError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<i128> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (binary, exponent) = scale(suffix)?;
    if fraction.is_empty() && whole.len() <= 15 && exponent >= -9 {
        // Nearly every quantity there is: a short integer with a suffix.
        let value = whole.parse::<i128>().ok()?;
        let factor = match (binary, u32::try_from(exponent + 9)) {
            (Some(shift), _) => NANO.checked_shl(shift),
            (None, Ok(power)) if power <= 27 => Some(10i128.pow(power)),
            _ => None,
        };
        let magnitude = factor.and_then(|f| value.checked_mul(f)).unwrap_or(MAX_NANOS).min(MAX_NANOS);
        let magnitude = if value == 0 { 0 } else { magnitude };
        return Some(if negative { -magnitude } else { magnitude });
    }
    let digits: String = whole.chars().chain(fraction.chars()).collect();
    let digits = digits.trim_start_matches('0');
    let places = i64::try_from(fraction.len()).ok()?;
    let magnitude = if digits.is_empty() {
        0
    } else if let Some(shift) = binary {
        magnitude(digits, -places + 9, 1i128 << shift)
    } else {
        magnitude(digits, exponent - places + 9, 1)
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// digits * 10^power * factor, rounded up, saturating.
fn magnitude(digits: &str, power: i64, factor: i128) -> i128 {
    // 10^19 units is past the cap whatever the factor; digits below 10^-40 can only round up to one.
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    if length.saturating_add(power) > 30 {
        return MAX_NANOS;
    }
    if length.saturating_add(power) < -20 {
        return 1;
    }
    // 28 digits hold every value in range to the nano-unit. With a binary factor of up to 2^60 only 18 fit an i128,
    // and no value in range has more of them before the point.
    let significant = if factor == 1 { 28 } else { 18 };
    let kept: String = digits.chars().take(significant).collect();
    let dropped = length - i64::try_from(kept.len()).unwrap_or(0);
    let inexact = digits.chars().skip(significant).any(|c| c != '0');
    let Ok(mut value) = kept.parse::<i128>() else { return MAX_NANOS };
    value = value.saturating_mul(factor);
    let power = power + dropped;
    let mut result = if power >= 0 {
        let power = u32::try_from(power).unwrap_or(u32::MAX);
        10i128.checked_pow(power).map_or(i128::MAX, |p| value.saturating_mul(p))
    } else {
        let power = u32::try_from(-power).unwrap_or(u32::MAX);
        10i128.checked_pow(power).map_or(1, |p| ceil_div(value, p))
    };
    if inexact && power < 0 {
        result = result.saturating_add(1);
    }
    result.min(MAX_NANOS)
}

/// (binary shift, decimal exponent) of a suffix.
fn scale(suffix: &str) -> Option<(Option<u32>, i64)> {
    Some(match suffix {
        "n" => (None, -9),
        "u" => (None, -6),
        "m" => (None, -3),
        "" => (None, 0),
        "k" => (None, 3),
        "M" => (None, 6),
        "G" => (None, 9),
        "T" => (None, 12),
        "P" => (None, 15),
        "E" => (None, 18),
        "Ki" => (Some(10), 0),
        "Mi" => (Some(20), 0),
        "Gi" => (Some(30), 0),
        "Ti" => (Some(40), 0),
        "Pi" => (Some(50), 0),
        "Ei" => (Some(60), 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // Absurd exponents saturate or vanish; they don't overflow.
            let value = digits.parse::<i64>().unwrap_or(i64::MAX).min(1_000_000);
            (None, if exponent.starts_with('-') { -value } else { value })
        }
    })
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value % NANO != 0 {
            return if value % 1_000_000 == 0 {
                write!(f, "{}m", value / 1_000_000)
            } else if value % 1_000 == 0 {
                write!(f, "{}u", value / 1_000)
            } else {
                write!(f, "{value}n")
            };
        }
        let units = value / NANO;
        for (shift, suffix) in [(60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")] {
            if units != 0 && units % (1i128 << shift) == 0 {
                return write!(f, "{}{suffix}", units >> shift);
            }
        }
        write!(f, "{units}")
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"500m\", \"64Gi\" or 10")
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Quantity, E> {
                v.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(i64::try_from(v).unwrap_or(i64::MAX)))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(v))
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Quantity, E> {
                v.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn reads_every_suffix() {
        for (text, nanos) in [
            ("0", 0),
            ("1", NANO),
            ("+1", NANO),
            ("-1", -NANO),
            ("100m", NANO / 10),
            ("1.5", NANO * 3 / 2),
            (".5", NANO / 2),
            ("5.", 5 * NANO),
            ("1u", 1_000),
            ("1n", 1),
            ("0.1n", 1),
            ("2k", 2_000 * NANO),
            ("1Ki", 1024 * NANO),
            ("1.5Gi", 1_610_612_736 * NANO),
            ("1e3", 1_000 * NANO),
            ("1E3", 1_000 * NANO),
            ("12e-1", 1_200_000_000),
            ("1E", 1_000_000_000_000_000_000 * NANO),
            ("000000000000000000000000000000001", NANO),
        ] {
            assert_eq!(q(text).0, nanos, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_quantity() {
        for text in
            ["", "-", ".", "1.2.3", "Gi", "1gi", "1 Gi", "1e", "1e1.5", "0x10", "NaN", "inf", "1KiB", "--1"]
        {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn absurd_magnitudes_saturate() {
        assert_eq!(q("9999999999999999999999999999999E").units(), i64::MAX);
        assert_eq!(q("1e999999999999999999999").units(), i64::MAX);
        assert_eq!(q("-1e999999999999999999999").units(), -i64::MAX);
        assert_eq!(q("1e-999999999999999999999").0, 1);
        assert_eq!(q("16Ei").units(), i64::MAX);
        assert_eq!(q("9223372036854775807").millis(), i64::MAX);
    }

    #[test]
    fn rounds_up_as_kube_scheduler_does() {
        assert_eq!(q("1100u").millis(), 2);
        assert_eq!(q("100m").units(), 1);
        assert_eq!(q("0.0001Ki").units(), 1);
        assert_eq!(q("1.0000009").micros_floor(), 1_000_000);
    }

    #[test]
    fn prints_what_it_reads() {
        for text in ["0", "1", "100m", "64Gi", "1536Mi", "7u", "3n", "-2Ki", "1000"] {
            assert_eq!(q(text).to_string(), text);
        }
    }
}
