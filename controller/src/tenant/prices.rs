//! Prices, as the status of a claim has them.

/// Millionths of a dollar, from a price in dollars as a claim's status has it.
pub(super) fn micros(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain(std::iter::repeat('0')).take(6).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(part.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_whole_millionths() {
        let cases =
            [("0.096", Some(96_000)), ("12", Some(12_000_000)), ("1.2345678", Some(1_234_567)), ("x", None)];
        for (text, expected) in cases {
            assert_eq!(micros(text), expected, "{text}");
        }
    }
}
