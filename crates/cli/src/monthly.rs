//! Dollars per month from dollars per hour.

use croft_scheduler::Price;

/// Hours of an average month: 365.25 days / 12.
const HOURS_PER_MONTH_TENTHS: u64 = 7_305;

/// The cost of an average month at `price` per hour, such as `$70.08`.
pub(crate) fn per_month(price: Price) -> String {
    dollars(Price::from_micros(price.saturating_mul(HOURS_PER_MONTH_TENTHS).micros() / 10))
}

fn dollars(price: Price) -> String {
    format!("${}.{:02}", price.micros() / 1_000_000, price.micros() % 1_000_000 / 10_000)
}
