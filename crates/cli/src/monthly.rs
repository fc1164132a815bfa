//! Dollars per month from dollars per hour.

use croft_scheduler::Price;

/// Hours of an average month: 365.25 days / 12.
const HOURS_PER_MONTH_TENTHS: u64 = 7_305;

/// The cost of an average month at `price` per hour.
pub(crate) fn monthly(price: Price) -> Price {
    Price::from_micros(price.saturating_mul(HOURS_PER_MONTH_TENTHS).micros() / 10)
}

/// The same as text, such as `$70.08`.
pub(crate) fn per_month(price: Price) -> String {
    dollars(monthly(price))
}

/// An amount in whole cents, such as `$70.08`.
pub(crate) fn dollars(amount: Price) -> String {
    format!("${}.{:02}", amount.micros() / 1_000_000, amount.micros() % 1_000_000 / 10_000)
}
