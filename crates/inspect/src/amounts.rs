//! Amounts in sentences and tables: dollars, and dollars per month from dollars per hour.

use croft_scheduler::Price;

/// Hours of an average month: 365.25 days / 12.
const HOURS_PER_MONTH_TENTHS: u64 = 7_305;

/// The cost of an average month at `price` per hour.
#[must_use]
pub fn monthly(price: Price) -> Price {
    Price::from_micros(price.saturating_mul(HOURS_PER_MONTH_TENTHS).micros() / 10)
}

/// The same as text, such as `$70.08`.
#[must_use]
pub fn per_month(price: Price) -> String {
    dollars(monthly(price))
}

/// An amount in whole cents, such as `$70.08`.
#[must_use]
pub fn dollars(amount: Price) -> String {
    format!("${}.{:02}", amount.micros() / 1_000_000, amount.micros() % 1_000_000 / 10_000)
}

/// Micro-dollars as dollars, with a sign, for JSON.
#[must_use]
pub fn signed_dollars(micros: i64) -> f64 {
    let amount = Price::from_micros(micros.saturating_abs()).dollars();
    if micros < 0 { -amount } else { amount }
}
