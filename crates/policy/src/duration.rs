//! Durations as users write them.

use std::time::Duration;

/// The text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration; write one such as 30s, 5m, 1h30m or Never")]
pub struct DurationError(pub String);

/// Parses a Go duration of hours, minutes, seconds and milliseconds (`1h30m`, `0.5s`), or `Never`, which is `None`.
/// Digits after the third decimal are dropped.
///
/// # Errors
/// If `text` is neither, or the duration overflows.
pub fn parse(text: &str) -> Result<Option<Duration>, DurationError> {
    if text == "Never" {
        return Ok(None);
    }
    let error = || DurationError(text.to_owned());
    let mut rest = text;
    let mut millis: u64 = 0;
    loop {
        let number_len = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(error)?;
        let (number, tail) = rest.split_at(number_len);
        let unit_len = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let unit_millis: u64 = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return Err(error()),
        };
        millis = thousandths(number)
            .and_then(|n| n.checked_mul(unit_millis))
            .and_then(|n| millis.checked_add(n / 1_000))
            .ok_or_else(error)?;
        rest = tail;
        if rest.is_empty() {
            return Ok(Some(Duration::from_millis(millis)));
        }
    }
}

fn thousandths(number: &str) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let padded: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole.checked_mul(1_000)?.checked_add(padded.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations_as_go_writes_them() {
        for (text, millis) in [
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("720h", 2_592_000_000),
            ("0.5s", 500),
            (".25s", 250),
            ("1m0s", 60_000),
            ("250ms", 250),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Some(Duration::from_millis(millis))), "{text}");
        }
        assert_eq!(parse("Never"), Ok(None));
    }

    #[test]
    fn refuses_durations_that_overflow() {
        for text in ["", "s", "30", "30 s", "-1s", "1d", "1.2.3s", "99999999999999999999h", "never", "."] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
